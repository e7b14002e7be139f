"""A worker process: a worker, its sockets, and the loop between them.

The loop takes what has come, lets the worker do a quantum of work, sends what that gave, and blocks when there is
nothing to do: an idle worker uses no processor. All letters that a step has for one peer travel as one message.

Requests are answered as soon as they can be. `Wait` is looked at after every step; `Idle` when a step had nothing
to do. An exception inside a dataflow is the worker's business, and fails that dataflow. Any other ends the
process: it is reported to the driver first, and since the guard watches, all others end with it.

Cost: a message costs its sender and its receiver about 50 us each, of processor time, and as much again in
ZeroMQ's own thread.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import zmq

from ikebana.dataflow.messages import Failed, Letter
from ikebana.dataflow.transport import launch, wire
from ikebana.dataflow.transport.calls import (
    Answer,
    Crash,
    Greeting,
    Hello,
    Idle,
    Peers,
    Read,
    Ready,
    Refusal,
    Stop,
    Wait,
)
from ikebana.dataflow.transport.curve import Socket, Sockets
from ikebana.dataflow.worker import Worker
from ikebana.errors import DataflowError, IkebanaError

_AT_ONCE = 64
"""How many messages are taken from a socket before the worker gets a turn."""

_REPORT_MS = 1000
"""How long an ending process tries to get its report to the driver."""


def main() -> None:
    """Be a worker process."""
    seat = launch.take_seat()
    launch.stand_guard(seat)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what users print is seen at once
    code = Station(seat).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the system frees memory faster than an interpreter that is taken down in order, by 0.2 s


class Station:
    """A worker and its sockets."""

    def __init__(self, seat: launch.Seat) -> None:
        self._seat = seat
        keys = [key.encode() for key in seat.worker_keys]
        self._sockets = Sockets(seat.keys, [key for key in keys if key != seat.keys.public], seat.host)
        self._inbox, self._endpoint = self._sockets.listen(zmq.PULL)
        self._driver = self._sockets.connect(zmq.DEALER, seat.driver, seat.driver_key.encode(), b"%d" % seat.index)
        self._peers: dict[int, Socket] = {}
        self._poller = zmq.Poller()
        for socket in (self._sockets.gate, self._driver, self._inbox):
            self._poller.register(socket, zmq.POLLIN)
        self.worker = Worker(seat.index, seat.workers, seat.effort)
        self._sent = self._received = 0
        self._wait: Wait | None = None
        self._idle: Idle | None = None
        self._stopped = False

    def run(self) -> int:
        """Serve until told to stop; returns the exit code."""
        try:
            self._join()
            while not self._stopped:
                self._turn()
        except BaseException as error:
            reason = traceback.format_exception_only(error)[-1].strip()
            wire.send(self._driver, wire.encode(Crash(reason, traceback.format_exc())))
            self._driver.close(linger=_REPORT_MS)
            self._sockets.close()
            traceback.print_exc()
            return launch.CRASHED
        self._sockets.close()
        return 0

    def _join(self) -> None:
        """Meet the driver and all peers."""
        self._tell(Hello(self._endpoint))
        peers: list[Peers] = self._next(self._driver)
        for index, endpoint in enumerate(peers[0].endpoints):
            if index != self._seat.index:
                key = self._seat.worker_keys[index].encode()
                self._peers[index] = self._sockets.connect(zmq.PUSH, endpoint, key)
                wire.send(self._peers[index], wire.encode(Greeting(self._seat.index)))
        missing = set(self._peers)
        while missing:
            missing.discard(self._next(self._inbox).sender)
        self._tell(Ready())

    def _next(self, socket: Socket) -> Any:
        while not wire.has_mail(socket):
            self._block()
        return wire.receive(socket)

    def _turn(self) -> None:
        self._take(self._driver, self._obey)
        self._take(self._inbox, self._deliver)
        worked = self.worker.step()
        self._post()
        if self._wait is not None:
            self._answer_wait(self._wait)
        if not worked:
            if self._idle is not None:
                self._tell(Answer(self._idle.number, (self._sent, self._received)))
                self._idle = None
            if not self._stopped:
                self._block()

    def _block(self) -> None:
        for socket, _ in self._poller.poll():
            if socket is self._sockets.gate:
                self._sockets.answer()

    def _take(self, socket: Socket, use: Callable[[Any], None]) -> None:
        for _ in range(_AT_ONCE):
            if not wire.has_mail(socket):
                return
            use(wire.receive(socket))

    # Letters.

    def _deliver(self, letters: list[Letter]) -> None:
        self._received += len(letters)
        for letter in letters:
            self.worker.deliver(letter)

    def _post(self) -> None:
        outbox = self.worker.outbox
        if not outbox:
            return
        self._sent += len(outbox)
        bundles: dict[int, list[Letter]] = {}
        while outbox:
            peer, letter = outbox.popleft()
            bundles.setdefault(peer, []).append(letter)
        for peer, letters in bundles.items():
            wire.send(self._peers[peer], wire.encode(letters))

    # The driver.

    def _obey(self, items: list[Any]) -> None:
        for item in items:
            match item:
                case Wait():
                    self._wait = item
                    self._answer_wait(item)
                case Idle():
                    self._idle = item
                case Read():
                    self._answer_read(item)
                case Stop():
                    self._stopped = True
                case wire.Sealed():
                    self._install(item)
                case _:
                    self.worker.command(item)

    def _install(self, sealed: wire.Sealed) -> None:
        """A plan that cannot be opened here fails everywhere, and fails alone."""
        try:
            command = sealed.open()
        except Exception as error:
            failed = Failed(sealed.dataflow, self._seat.index, f"{type(error).__name__}: {error}")
            self.worker.deliver(failed)
            self.worker.outbox.extend((peer, failed) for peer in self._peers)
        else:
            self.worker.command(command)

    def _answer_wait(self, wait: Wait) -> None:
        try:
            done = self.worker.complete(wait.dataflow) >= wait.epoch
        except IkebanaError as error:
            self._refuse(wait.number, error)
        else:
            if not done:
                return
            self._tell(Answer(wait.number))
        self._wait = None

    def _answer_read(self, read: Read) -> None:
        try:
            found = self.worker.read(read.dataflow, read.at)
        except IkebanaError as error:
            self._refuse(read.number, error)
        except Exception as error:
            what = f"cannot read dataflow {read.dataflow!r} at {read.at}"
            self._refuse(read.number, DataflowError(what, detail=f"{type(error).__name__}: {error}"))
        else:
            self._tell(Answer(read.number, found))

    def _refuse(self, number: int, error: IkebanaError) -> None:
        self._tell(Refusal(number, type(error), error.what, error.detail, error.hint))

    def _tell(self, message: Any) -> None:
        wire.send(self._driver, wire.encode(message))
