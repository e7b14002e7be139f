"""Guests: processes that are not of the cluster, such as tasks that load or read, and speak with workers directly.

    invitation = cluster.invitation            # in the driver; to be pickled and sent along
    with Guest(invitation) as guest:           # anywhere
        guest.ask(0, Push("edges", changes))   # a command is answered (None) when it was carried out
        table = guest.ask(1, Read("degrees", (3,)))

An `ClientCredentials` is where the workers' doors are, and the keys with which they open: whoever has it can do what
the driver can. It holds for one cluster, as long as that lives. Large arrays travel without a copy on either side.

Flow. `send` does not wait for the answer, and so keeps a worker and the network busy at once; but it waits while
`limit` requests to that worker are unanswered, so that what is under way is bounded. `finish` waits for the rest.
Requests to one worker are taken in order. A refusal is raised by the next call that waits, and `finish` at the latest.

Ends. When a worker's connection is lost the call raises, and the guest is of no further use. It is lost at once when
the worker has ended, and after 20 s when its process is stopped or its machine out of reach: ZeroMQ's own threads
answer for a worker that computes, however long that takes. With a `timeout` a call raises also when the worker has not
answered for so many seconds. A guest may leave at any time without disturbing anyone.

Cost: connecting takes 2 ms, a request and its answer 0.2 ms. Not guaranteed: use from several threads.
"""

from __future__ import annotations

import itertools
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Self

import zmq

from ikebana.cluster import codec
from ikebana.cluster.authentication import LOST, Keys, Socket, Sockets
from ikebana.cluster.protocol import Ask, CancelRequest, Refusal, Reply
from ikebana.errors import DataflowError
from ikebana.runtime.messages import Command, Request

_GONE = LOST | zmq.EVENT_CONNECT_RETRIED
"""Workers listen before anybody is invited: if nobody does, the worker is gone."""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a guest must know about a cluster."""

    doors: tuple[str, ...]  # where each worker listens for guests
    worker_keys: tuple[bytes, ...]  # the public keys by which they are known
    keys: Keys = field(repr=False)  # the guests' own

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.doors)


class Client:
    """A guest of a cluster."""

    def __init__(self, invitation: ClientCredentials, *, timeout: float | None = None, limit: int = 4) -> None:
        """`timeout`: how many seconds an answer may take, as long as the worker lives if none is given.

        `limit`: how many requests to a worker may be unanswered.
        """
        self.invitation, self._timeout, self._limit = invitation, timeout, limit
        self._sockets = Sockets(invitation.keys, (), "", heartbeat=True)
        self._close = weakref.finalize(self, self._sockets.close)
        self._poller = zmq.Poller()
        self._doors: dict[int, Socket] = {}
        self._watches: dict[int, Socket] = {}
        self._numbers = itertools.count()
        self._unanswered: dict[int, set[int]] = {}  # numbers, by worker
        self._kept: dict[int, Reply | None] = {}  # replies that somebody waits for

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self.invitation.size

    def ask(self, worker: int, request: Request | Command, *, timeout: float | None = None) -> Any:
        """A worker's answer to a request; raises what it refuses with. `timeout` is for this request."""
        number = next(self._numbers)
        self._kept[number] = None
        try:
            self._send(worker, Ask(number, request))
            self._wait(worker, lambda: self._kept[number] is not None, timeout)
            reply = self._kept[number]
        finally:
            if self._kept.pop(number) is None:
                self._forget(worker, number)
        assert reply is not None
        if isinstance(reply, Refusal):
            raise reply.error()
        return reply.value

    def send(self, worker: int, request: Request | Command) -> None:
        """Send a request of which only a refusal is of interest; waits while too many are unanswered."""
        self._wait(worker, lambda: len(self._unanswered.get(worker, ())) < self._limit)
        self._send(worker, Ask(next(self._numbers), request))

    def finish(self) -> None:
        """Wait until everything that was sent is answered."""
        for worker in list(self._unanswered):
            self._wait(worker, lambda worker=worker: not self._unanswered[worker])

    def close(self) -> None:
        """Leave."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def _send(self, worker: int, ask: Ask) -> None:
        if not self._close.alive:
            raise DataflowError("the guest has left", hint="make another from the invitation")
        if worker not in self._doors:
            self._connect(worker)
        try:
            codec.send(self._doors[worker], codec.encode(ask))
        except zmq.Again:
            raise _gone(worker) from None
        self._unanswered.setdefault(worker, set()).add(ask.number)

    def _forget(self, worker: int, number: int) -> None:
        """Tell a worker that nobody waits for an answer any more."""
        if self._close.alive and number in self._unanswered.get(worker, ()):
            self._unanswered[worker].discard(number)
            with suppress(zmq.Again):  # it is gone
                codec.send(self._doors[worker], codec.encode(CancelRequest(number)))

    def _connect(self, worker: int) -> None:
        if not 0 <= worker < self.size:
            raise DataflowError(f"there is no worker {worker}", detail=f"there are {self.size}, counted from 0")
        key = self.invitation.worker_keys[worker]
        door = self._doors[worker] = self._sockets.connect(zmq.DEALER, self.invitation.doors[worker], key)
        door.set(zmq.SNDTIMEO, 0)  # there is always room, unless the connection was given up
        watch = self._watches[worker] = Sockets.watch(door, _GONE)
        self._poller.register(door, zmq.POLLIN)
        self._poller.register(watch, zmq.POLLIN)

    def _wait(self, worker: int, is_done: Any, timeout: float | None = None) -> None:
        """Take replies until it is done; raises refusals of what was sent, and when a worker is gone or too slow."""
        seconds = self._timeout if timeout is None else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        while not is_done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise DataflowError(
                    f"worker {worker} has not answered for {seconds:g} s",
                    detail="it is busy: it has not ended, and its machine can be reached",
                    hint="give a longer `timeout`, or none",
                )
            events = dict(self._poller.poll(None if left is None else ceil(left * 1000)))
            for each, door in self._doors.items():
                if door in events:
                    self._take(each, door)
            lost = [each for each, watch in self._watches.items() if watch in events]
            if lost and not is_done():
                raise _gone(lost[0])

    def _take(self, worker: int, door: Socket) -> None:
        while codec.has_mail(door):
            reply: Reply = codec.receive(door)
            self._unanswered[worker].discard(reply.number)
            if reply.number in self._kept:
                self._kept[reply.number] = reply
            elif isinstance(reply, Refusal):
                raise reply.error()


def _gone(worker: int) -> DataflowError:
    return DataflowError(
        f"worker {worker} is gone",
        detail="the connection to it was lost",
        hint="the session has ended or lost a worker; its driver says which",
    )
