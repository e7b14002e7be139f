"""Clients: processes outside the cluster, such as Spark tasks that load or read, which talk to workers directly.

    credentials = cluster.keys.issue(Grant(...))      # in the driver; can be pickled and sent to other processes
    with Client(credentials) as client:               # in any process
        client.send(0, Stage(7, "edges", ...))        # answered (with None) when the rows are staged
        shard = client.ask(1, Read("degrees", (3,), hold=12, wait=True))

`ClientCredentials` are the workers' endpoints for clients, and the key pair of a job. A process that has them can do
what the job may do (`ikebana.cluster.client_keys`), for as long as the key is valid, and nothing else. The messages are
those of `ikebana.cluster.client_protocol`.

Flow control. `send` does not wait for the answer, so that the worker and the network are busy at the same time; but it
waits while `limit` requests to that worker are unanswered. `finish` waits for all answers. A worker takes the requests
of a client in order. A refusal is raised by the next call that waits, at the latest by `finish`.

End. When the connection to a worker is lost, the call raises, and the client can no longer be used. That happens at
once when the worker has ended, and after 20 s when its process is stopped or its machine cannot be reached. A worker
that computes does not lose its connections, however long that takes: ZeroMQ's own threads answer heartbeats. With a
`timeout`, a call also raises when the worker has not answered for that many seconds. A client may disconnect at any
time without disturbing others.

Cost: connecting takes 3 ms, a request and its answer 0.2 ms. Not guaranteed: use from several threads.
"""

from __future__ import annotations

import itertools
import time
import weakref
from contextlib import suppress
from math import ceil
from typing import Any, Self

import zmq
from zmq.utils.monitor import parse_monitor_message

from ikebana.cluster import codec
from ikebana.cluster.authentication import LOST_EVENTS, Socket, Sockets
from ikebana.cluster.client_keys import ClientCredentials
from ikebana.cluster.client_protocol import ClientHello, ClientRequest, decode_reply, encode_request
from ikebana.cluster.plain import UndecodableError
from ikebana.cluster.protocol import Ask, CancelRequest, Refusal, Reply
from ikebana.errors import DataflowError

_LOST_OR_REFUSED_EVENTS = LOST_EVENTS | zmq.EVENT_CONNECT_RETRIED
"""Workers listen before there are any credentials: if a connection is refused, the worker has ended."""


class Client:
    """A client of a cluster."""

    def __init__(self, credentials: ClientCredentials, *, timeout: float | None = None, limit: int = 4) -> None:
        """`timeout` limits how many seconds an answer may take; by default there is no limit while the worker lives.

        `limit` is how many requests to a worker may be unanswered.
        """
        self.credentials, self._timeout, self._limit = credentials, timeout, limit
        self._sockets = Sockets(credentials.keys, heartbeat=True)
        self._close = weakref.finalize(self, self._sockets.close)
        self._poller = zmq.Poller()
        self._sockets_by_worker: dict[int, Socket] = {}
        self._monitors: dict[int, Socket] = {}
        self._numbers = itertools.count()
        self._unanswered: dict[int, set[int]] = {}  # the numbers of requests, by worker
        self._awaited: dict[int, Reply | None] = {}  # replies that `ask` waits for
        self._lost: dict[int, DataflowError] = {}  # why connections were lost, by worker

    @property
    def size(self) -> int:
        """The number of workers."""
        return self.credentials.size

    def ask(self, worker: int, request: ClientRequest, *, timeout: float | None = None) -> Any:
        """Return a worker's answer to a request; raises if the worker refuses it. `timeout` is for this request."""
        number = next(self._numbers)
        self._awaited[number] = None
        try:
            self._send(worker, Ask(number, request))
            self._wait(worker, lambda: self._awaited[number] is not None, timeout)
            reply = self._awaited[number]
        finally:
            if self._awaited.pop(number) is None:
                self._cancel(worker, number)
        assert reply is not None
        if isinstance(reply, Refusal):
            raise reply.error()
        return reply.value

    def send(self, worker: int, request: ClientRequest) -> None:
        """Send a request whose answer is not needed; waits while too many requests are unanswered."""
        self._wait(worker, lambda: len(self._unanswered.get(worker, ())) < self._limit)
        self._send(worker, Ask(next(self._numbers), request))

    def finish(self) -> None:
        """Wait until all requests are answered."""
        for worker in list(self._unanswered):
            self._wait(worker, lambda worker=worker: not self._unanswered[worker])

    def close(self) -> None:
        """Disconnect."""
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
            raise DataflowError("the client is closed", hint="create another one from the same credentials")
        if worker not in self._sockets_by_worker:
            self._connect(worker)
            self.ask(worker, ClientHello())
        try:
            codec.send(self._sockets_by_worker[worker], encode_request(ask))
        except zmq.Again:
            raise self._lost_connection(worker) from None
        self._unanswered.setdefault(worker, set()).add(ask.number)

    def _cancel(self, worker: int, number: int) -> None:
        """Tell a worker that an answer is not needed any more."""
        if self._close.alive and number in self._unanswered.get(worker, ()):
            self._unanswered[worker].discard(number)
            with suppress(zmq.Again):  # the connection is lost
                codec.send(self._sockets_by_worker[worker], encode_request(CancelRequest(number)))

    def _connect(self, worker: int) -> None:
        if not 0 <= worker < self.size:
            raise DataflowError(f"there is no worker {worker}", detail=f"there are {self.size}, counted from 0")
        endpoint, key = self.credentials.endpoints[worker], self.credentials.worker_keys[worker]
        socket, monitor = self._sockets.connect_watched(zmq.DEALER, endpoint, key, _LOST_OR_REFUSED_EVENTS)
        socket.set(zmq.SNDTIMEO, 0)  # the queue is unbounded: sending only fails if the connection is lost
        self._sockets_by_worker[worker], self._monitors[worker] = socket, monitor
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def _wait(self, worker: int, is_done: Any, timeout: float | None = None) -> None:
        """Receive replies until `is_done`. Raises refusals of sent requests, and if a worker is lost or too slow."""
        seconds = self._timeout if timeout is None else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        while not is_done():
            if worker in self._lost:
                raise self._lost[worker]
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise DataflowError(
                    f"worker {worker} has not answered for {seconds:g} s",
                    detail="the worker is busy: it has not ended, and its machine can be reached",
                    hint="give a longer `timeout`, or none",
                )
            events = dict(self._poller.poll(None if left is None else ceil(left * 1000)))
            for index, socket in self._sockets_by_worker.items():
                if socket in events:
                    self._receive(index, socket)
            lost = [index for index, monitor in self._monitors.items() if monitor in events]
            if lost and not is_done():
                raise self._lost_connection(lost[0])

    def _receive(self, worker: int, socket: Socket) -> None:
        while codec.is_readable(socket):
            reply = _decoded(codec.receive_frames(socket))
            self._unanswered[worker].discard(reply.number)
            if reply.number in self._awaited:
                self._awaited[reply.number] = reply
            elif isinstance(reply, Refusal):
                raise reply.error()

    def _lost_connection(self, worker: int) -> DataflowError:
        if worker not in self._lost:
            host, monitor = self.credentials.host(worker), self._monitors[worker]
            was_rejected = codec.is_readable(monitor) and _is_rejection(monitor)
            self._lost[worker] = _rejected_key(worker, host) if was_rejected else _worker_gone(worker, host)
        return self._lost[worker]


def _decoded(frames: codec.Frames) -> Reply:
    try:
        return decode_reply(frames)
    except UndecodableError as error:
        raise DataflowError(error.what, detail=error.detail, hint=error.hint) from None


def _is_rejection(monitor: Socket) -> bool:
    """Whether the next event of a connection is that the client's key was rejected."""
    event = parse_monitor_message(monitor.recv_multipart())
    return event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH


def _rejected_key(worker: int, host: str) -> DataflowError:
    return DataflowError(
        f"worker {worker} on {host} rejects the key of this job",
        detail="the job has ended, or the key has expired",
        hint="run the job again, or create the DataFrame again",
    )


def _worker_gone(worker: int, host: str) -> DataflowError:
    return DataflowError(
        f"worker {worker} is gone",
        detail=f"the connection to it, on {host}, was lost",
        hint="the session was closed or has lost a worker; see the error in its driver",
    )
