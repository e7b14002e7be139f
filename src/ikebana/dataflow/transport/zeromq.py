"""Workers in processes of their own, on this machine, with ZeroMQ between them: the driver's side.

    with Engine(cluster=Processes(workers=2)) as engine: ...

The driver has one socket, to which all workers are connected; workers have connections with each other, and
changes that they exchange never pass through the driver. `wire` says how messages are written, `curve` who may
connect, `launch` how processes start and end, `station` what a worker process does, `calls` what is asked of it.

Order. A worker takes what the driver sends in the order it was sent, commands and requests alike, so that a
request needs no acknowledgement of the commands before it. Commands that have no effect until another comes (a few
changes at an epoch that is still open, a demand that nobody waits for yet) are held and travel with the next.

Rest. Nothing is left to do when no worker has work and no letter is under way. Workers answer `Idle` when they
have no work, with how many letters they have sent and received. When as many had been received by the first of
two such waves as had been sent by the second, then nothing was under way between the two and nothing was sent
since: the four-counter method (Mattern, 1987). Only the driver could start anything, and it waits here.

Ends. When a worker ends, however it does, the call that is under way and every later one raise an error that says
which worker it was and how it ended, and no process is left. `close`, leaving the program and losing the last
reference to the cluster end the processes too. An interrupt (Ctrl-C) leaves the cluster usable, except in the
middle of sending.

Cost: a request to all workers and back takes 0.2 ms with one worker and 0.35 ms with two, on two busy cores;
starting takes as long as importing does, 1 to 3 s; closing 0.05 s, or 1 s while a worker computes.
Not guaranteed: use from several threads, or from a fork of this process; a bound on what a driver that does not
wait for its workers can have under way; anything when a worker is stopped rather than ended.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import Any, NoReturn, Self

import pyarrow as pa
import zmq

from ikebana.dataflow import messages
from ikebana.dataflow.messages import Command, CreateInput, Demand, Install, Push
from ikebana.dataflow.transport import wire
from ikebana.dataflow.transport.calls import Answer, Crash, Hello, Idle, Peers, Read, Ready, Refusal, Reply, Stop, Wait
from ikebana.dataflow.transport.curve import Keys, Socket, Sockets
from ikebana.dataflow.transport.launch import CRASHED, Children, Seat, how_ended
from ikebana.errors import DataflowError, DroppedError
from ikebana.time import Time

_LOOK = 0.5
"""While waiting, look at the processes at least this often (seconds). Their lifelines usually tell at once."""

_STALLED = 1.0
"""After so long without an answer to a wait, find out whether there is anything left to do."""

_FEW = 1000
"""So many changes are held until the next command; more of them start on their way at once."""

_HELD = 64
"""So many commands are held at most."""

_LAST_WORDS = 0.3
"""How long to wait for the report of a worker that has ended."""


class Processes:
    """W worker processes."""

    def __init__(
        self,
        workers: int = 1,
        *,
        effort: str = "default",
        host: str = "127.0.0.1",
        python: str = sys.executable,
        patience: float = 120.0,
    ) -> None:
        """Start the workers, and return when all are there.

        `host` is the address on which all sockets listen, `python` the interpreter to run, and `patience` how many
        seconds starting may take (the first time on a machine kernels are compiled).
        """
        if workers < 1:
            raise DataflowError(f"cannot start {workers} workers", hint="give at least one")
        self._size, self._error = workers, ("", "", "")
        keys, others = Keys.new(), [Keys.new() for _ in range(workers)]
        self._sockets = Sockets(keys, [each.public for each in others], host)
        self._router, endpoint = self._sockets.listen(zmq.ROUTER)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._children = Children(python)
        self._end = weakref.finalize(self, _end, self._router, self._sockets, self._children, os.getpid())
        self._calls: dict[int, _Call] = {}
        self._numbers = itertools.count()
        self._news: dict[int, Any] = {}  # what workers say unasked
        self._held: list[list[Any]] = [[] for _ in range(workers)]  # what is to be sent to each
        public = [each.public.decode() for each in others]
        try:
            self._children.start(
                [
                    Seat(index, workers, effort, host, endpoint, keys.public.decode(), public, each.secret.decode())
                    for index, each in enumerate(others)
                ]
            )
            self._poller = self._new_poller()
            self._introduce(patience)
        except BaseException:
            self._end()
            raise

    def _new_poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._sockets.gate, zmq.POLLIN)
        for lifeline in self._children.lifelines:
            poller.register(lifeline, zmq.POLLIN | zmq.POLLERR)
        return poller

    def _introduce(self, patience: float) -> None:
        """Tell every worker where its peers are, and wait until all are connected."""
        deadline = time.monotonic() + patience
        hellos = self._gather(Hello, deadline)
        for each in self._held:
            each.append(Peers(tuple(hellos[index].endpoint for index in range(self._size))))
        self._flush()
        self._gather(Ready, deadline)

    def _gather(self, kind: type[Any], deadline: float) -> dict[int, Any]:
        self._news = {}
        while len(self._news) < self._size:
            if time.monotonic() > deadline:
                missing = [index for index in range(self._size) if index not in self._news]
                self._fail(f"worker {missing[0]} did not start in time", "", "give it more `patience`")
            self._pump(_LOOK)
        assert all(isinstance(each, kind) for each in self._news.values())
        return self._news

    # What the engine asks for (`ikebana.dataflow.transport.Cluster`).

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._size

    @property
    def pids(self) -> list[int]:
        """The process of each worker."""
        return self._children.pids

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one."""
        self._check()
        sent = wire.seal(command) if isinstance(command, Install) else command
        for index in range(self._size) if worker is None else (worker,):
            self._held[index].append(sent)
        if not _can_be_held(command) or any(len(each) > _HELD for each in self._held):
            self._flush()

    def run(self) -> None:
        """Return when all commands sent so far were taken, and nothing is left to do."""
        self._check()
        self._settle()

    def ask(self, request: Any, worker: int | None = None) -> list[Any]:
        """The answers of all workers."""
        if isinstance(request, messages.Wait):
            self.wait(request.dataflow, request.epoch)
            return [None] * self._size
        return [self.read(request.dataflow, request.at)]

    def listen(self, listener: Any) -> None:
        """Not yet."""

    def wait(self, dataflow: str, epoch: int) -> None:
        """Return when a dataflow has completed the epochs before `epoch` on all workers; raise if it has failed."""
        with self._call(Wait, dataflow, epoch) as call:
            self._pump_until(call, time.monotonic() + _STALLED)
            if not call.is_over:
                self._settle(unless=call)
        if not call.is_over:
            raise DataflowError(
                f"dataflow {dataflow!r} cannot complete epoch {epoch - 1}",
                detail="it has not got there, and there is nothing left to do",
                hint="advance its inputs past that epoch, and demand it, first",
            )
        call.result()

    def read(self, dataflow: str, at: Time) -> pa.Table:
        """A dataflow's result at a time, from all workers."""
        with self._call(Read, dataflow, at) as call:
            self._pump_until(call)
        return pa.concat_tables(call.result())

    def close(self) -> None:
        """End the workers."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Requests.

    def _call(self, kind: type[Any], *details: Any) -> _Call:
        """Ask all workers."""
        self._check()
        call = _Call(next(self._numbers), self._size, self._calls)
        for each in self._held:
            each.append(kind(call.number, *details))
        self._flush()
        return call

    def _settle(self, unless: _Call | None = None) -> None:
        """Return when nothing is left to do, or when a call is over."""
        earlier: list[tuple[int, int]] = []
        while True:
            with self._call(Idle) as wave:
                while not wave.is_over and not (unless and unless.is_over):
                    self._pump(_LOOK)
            if not wave.is_over or is_rest(earlier, wave.result()):
                return
            earlier = wave.result()

    def _pump_until(self, call: _Call, deadline: float = float("inf")) -> None:
        while not call.is_over and (left := deadline - time.monotonic()) > 0:
            self._pump(min(_LOOK, left))

    def _pump(self, seconds: float) -> None:
        """Wait at most so long for anything to come, and take what has come."""
        events = dict(self._poller.poll(ceil(seconds * 1000)))
        if self._sockets.gate in events:
            self._sockets.answer()
        self._take_mail()
        if (not events and self._children.look()) or any(each in events for each in self._children.lifelines):
            self._mourn()

    def _take_mail(self) -> None:
        while wire.has_mail(self._router):
            index = int(self._router.recv())
            message = wire.receive(self._router)
            if isinstance(message, Answer | Refusal):
                call = self._calls.get(message.number)
                if call is not None:  # else nobody waits for it any more
                    call.take(index, message)
            else:
                self._news[index] = message

    def _flush(self) -> None:
        """Send every worker what is held for it, as one message."""
        messages = [(index, wire.encode(items)) for index, items in enumerate(self._held) if items]
        self._held = [[] for _ in range(self._size)]
        try:
            for index, frames in messages:
                wire.send(self._router, frames, to=b"%d" % index)
        except zmq.ZMQError:
            self._mourn()
        except BaseException:  # not all of it is under way, and what follows would be taken for the rest
            self._error = ("the cluster was interrupted while it sent commands", "", "start another")
            self._end()
            raise

    # Ends.

    def _check(self) -> None:
        """Raise if the cluster is closed, or if a worker has ended."""
        if not self._end.alive:
            what, detail, hint = self._error
            if what:
                raise DataflowError(what, detail=detail, hint=hint)
            raise DroppedError("the workers were ended by close()", hint="start another cluster")
        if self._children.any_ended():
            self._mourn()

    def _mourn(self) -> NoReturn:
        """A worker has ended, or cannot be reached: end the others, and say which it was."""
        hint = "start the engine again and load the data again"
        index, code = self._children.first_ended()
        if code is None:
            self._fail("a worker cannot be reached any more", "its connection is lost", hint)
        report = self._last_words(index) if code == CRASHED else None
        if report is None:
            self._fail(f"worker {index} has died", f"{how_ended(code)}; its shard of every arrangement is gone", hint)
        self._fail(f"worker {index} has failed", f"{report.reason}\n{report.trace}", hint)

    def _last_words(self, index: int) -> Crash | None:
        """The report of a worker that has ended: the last it sent, but perhaps not yet here."""
        deadline = time.monotonic() + _LAST_WORDS
        while (left := deadline - time.monotonic()) > 0:
            self._take_mail()
            said = self._news.get(index)
            if isinstance(said, Crash):
                return said
            self._router.poll(ceil(left * 1000))
        return None

    def _fail(self, what: str, detail: str, hint: str) -> NoReturn:
        self._error = (what, detail, hint)
        self._end()
        raise DataflowError(what, detail=detail, hint=hint)


class _Call:
    """A request under way: it is forgotten when its block ends, answered or not."""

    def __init__(self, number: int, size: int, calls: dict[int, _Call]) -> None:
        self.number, self._size, self._calls = number, size, calls
        self._values: dict[int, Any] = {}
        self._refusal: Refusal | None = None
        calls[number] = self

    @property
    def is_over(self) -> bool:
        """Whether all workers have answered, or one has refused."""
        return len(self._values) == self._size or self._refusal is not None

    def take(self, index: int, reply: Reply) -> None:
        """A worker's reply."""
        if isinstance(reply, Refusal):
            self._refusal = reply
        else:
            self._values[index] = reply.value

    def result(self) -> list[Any]:
        """The answers by worker; raises what was given in place of one."""
        if self._refusal is not None:
            raise self._refusal.error()
        return [self._values[index] for index in range(self._size)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        del self._calls[self.number]


def _can_be_held(command: Command) -> bool:
    """Whether a command has no effect that anybody could notice before another command or request follows it."""
    if isinstance(command, Push):
        return len(command.changes) <= _FEW
    return isinstance(command, CreateInput | Demand)


def is_rest(earlier: Sequence[tuple[int, int]], later: Sequence[tuple[int, int]]) -> bool:
    """Whether two waves of counts (sent, received) prove that nothing was left to do at the end of the first.

    >>> is_rest([(3, 2), (2, 3)], [(3, 2), (2, 3)])
    True

    One wave in which the sums agree proves nothing. Here the first worker was asked before a letter reached it; the
    second got its answer to that letter before it was asked; so one letter is counted on each side, but not the same.

    >>> is_rest([(0, 0), (1, 1)], [(2, 1), (1, 1)])
    False
    """
    alone = len(later) == 1
    return alone or (bool(earlier) and sum(received for _, received in earlier) == sum(sent for sent, _ in later))


def _end(router: Socket, sockets: Sockets, children: Children, owner: int) -> None:
    """End the processes and close the sockets; not in a fork of the process that made them."""
    if os.getpid() != owner:
        return
    frames = wire.encode([Stop()])
    for index in range(len(children.pids)):
        with suppress(zmq.ZMQError):  # it has ended already, or was never there
            wire.send(router, frames, to=b"%d" % index)
    children.close()
    sockets.close()
