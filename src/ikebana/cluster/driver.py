"""A cluster of worker processes, on this machine or others: the driver's side.

Workers are connected to the driver and to each other; the changes that they exchange never pass through the driver. The
other modules: `hosts` is the interface to whatever starts the processes, `connections` sends and receives,
`protocol` defines the messages, `codec` encodes them, `plans` sends each plan only once, `shared_memory` passes large
messages between processes on one host, `authentication` and `admission` decide which processes may connect, `enrolment`
gives workers their keys, `worker_process` is the worker's side, and `client`, `client_protocol` and `client_keys` let
other processes talk to workers.

Order. A worker takes the commands and requests of one thread of the driver in the order in which they were sent, so a
request needs no acknowledgement of the commands before it. Commands that have no effect until another one follows (a
few changes at an open epoch or in a transaction, a demand that no thread waits for yet, a new input, all but the last
dataflow of a query) are held, and sent with the next command or request.

Termination. Nothing is left to do when no worker has work and no message between workers is in transit. A worker
answers `Idle` when it has no work, with the numbers of messages that it has sent and received. If the workers had
received as many messages in one wave of answers as they had sent by the next wave, then no message was in transit
between the waves and none was sent since: the four-counter method (Mattern, 1987). Only commands could start new work;
the workers count these too, and if there were any in between, another wave is needed.

End. When a worker ends, for whatever reason, all pending and later calls raise a `WorkerLostError` that names the
worker and how it ended, and no process is left; `start_again` starts another cluster like this one. `close`, the end of
the program and the loss of the last reference to the cluster also end the processes. An interrupt (Ctrl-C) leaves the
cluster usable.

Threads. Any number of threads can use a cluster. None waits for the requests of another.

Cost: a request to all workers and back takes 0.25 ms with one worker and 0.43 ms with two, on two busy cores (0.21 and
0.37 ms when the calling thread itself owned the socket, and only one could ask at a time).
Not guaranteed: use in a fork of this process; a bound on the messages in transit, if the driver does not wait for its
workers; anything when a worker process is stopped (SIGSTOP) and not ended.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from ikebana.cluster import Cluster, Listener
from ikebana.cluster.authentication import KeyPair, Sockets
from ikebana.cluster.client_keys import IssuedKeys
from ikebana.cluster.connections import PendingCall, WorkerConnections
from ikebana.cluster.enrolment import Enrolment
from ikebana.cluster.hosts import WorkerHost
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.launch import WorkerConfig
from ikebana.cluster.network import ListenAddress, host_of, parse_ports
from ikebana.cluster.plans import SentPlans
from ikebana.cluster.protocol import Ask, Counts, Idle
from ikebana.cluster.shared_memory import SharedMemory
from ikebana.errors import DataflowError
from ikebana.kernels import ensure_compiled
from ikebana.runtime.messages import Command, CreateInput, Demand, Install, Push, Request, Stage, unanswerable

_STALLED_SECONDS = 1.0
"""After this time without an answer, check whether there is anything left to do, and then repeatedly."""

HELD_COMMAND_ROWS = 1000
"""A command with at most this number of rows is held until the next command; a larger one is sent at once."""


class Driver:
    """W workers, each in a process, started by a host."""

    def __init__(
        self,
        worker_host: WorkerHost,
        workers: int,
        *,
        effort: str = "default",
        host: str = "127.0.0.1",
        workers_host: str | None = None,
        bind: str = "",
        workers_bind: str = "",
        ports: str | None = None,
        start_timeout: float = 120.0,
        memory: int | None = None,
        view_memory: int | None = None,
        spill: str | None = None,
        spill_bytes: int | None = None,
    ) -> None:
        """Start the workers, and return when all of them are connected.

        `host` is the address or name at which workers reach the driver, and `workers_host` the one at which they are
        reached themselves (by default the same). The driver listens on `bind` and the workers on `workers_bind`, by
        default on the same addresses; and on ports of the range `ports`, such as "7000-7020", by default on any.
        `start_timeout` limits the time of the start, in seconds. `memory` limits the memory of each
        worker, by default to its share of the machine's, and `view_memory` that of each view on a worker, by default to
        half of that; both in bytes (`ikebana.runtime.memory_budget`). Batches of at least `spill_bytes` are in files of
        the directory `spill` on the worker's machine (`ikebana.encoding.spill_files`); by default none are.
        """
        if workers < 1:
            raise DataflowError(f"cannot start {workers} workers", hint="give at least one")
        ensure_compiled()
        deadline = time.monotonic() + start_timeout
        keys, port_range = KeyPair.new(), parse_ports(ports)
        sockets = Sockets(keys, ListenAddress(host, bind, port_range), heartbeat=worker_host.watches_connections)
        shared = SharedMemory(workers, copies=True)  # received arrays are handed to users
        self._connections = WorkerConnections(sockets, worker_host, workers, shared)
        self._end = weakref.finalize(self, self._connections.close)
        self._sent_plans, self._install_lock = SentPlans(), threading.Lock()
        configs = [
            WorkerConfig(
                index=index,
                workers=workers,
                effort=effort,
                host=host if workers_host is None else workers_host,
                bind=workers_bind,
                ports=list(port_range or ()),
                driver=self._connections.endpoint,
                driver_key=keys.public.decode(),
                control_block=list(shared.address or ()),
                memory=memory,
                view_memory=view_memory,
                spill=spill,
                spill_bytes=spill_bytes,
                watches_connections=worker_host.watches_connections,
            )
            for index in range(workers)
        ]
        try:
            if worker_host.keeps_secrets:
                public_keys = _start_with_keys(worker_host, configs, self._connections)
                hellos = self._connections.open(public_keys, deadline)
            else:
                enrolment = Enrolment(sockets, workers)
                _start_with_tokens(worker_host, configs, enrolment)
                self._connections.enrol(enrolment, deadline)
                public_keys = enrolment.worker_keys
                hellos = self._connections.open(public_keys, deadline, enrolment.take_messages)
                enrolment.close()
        except BaseException:
            with defer_interrupts():
                self._end()
            raise
        self.pids = [hello.pid for hello in hellos]
        """The process id of each worker, on its machine."""
        self.hosts = [host_of(hello.endpoint) for hello in hellos]
        """The host of each worker."""
        self.keys = IssuedKeys(self._connections, (hello.client_endpoint for hello in hellos), public_keys)
        """Issues keys to clients, which connect to the workers directly (`ikebana.cluster.client`)."""

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._connections.size

    @property
    def runs_by_itself(self) -> bool:
        """True: workers run in processes of their own."""
        return True

    # The interface to the engine (`ikebana.cluster.Cluster`).

    def command(self, command: Command, worker: int | None = None, *, hold: bool = False) -> None:
        """Send a command to every worker, or to one; an install command always to every worker."""
        if isinstance(command, Install):
            with self._install_lock, defer_interrupts():  # commands are sent in the order in which they are sealed
                self._connections.send(self._sent_plans.seal(command), hold=hold)
        else:
            self._connections.send(command, worker, hold=hold or _can_be_held(command))

    def ask(self, request: Request, worker: int | None = None) -> list[Any]:
        """The answers of all workers, or of one."""
        with self._connections.call(partial(Ask, request=request), worker) as call:
            if not call.wait(_STALLED_SECONDS) and not self._settle(unless=call):
                raise unanswerable(request)
            return call.result()

    def run(self) -> None:
        """Return when all commands sent so far have been carried out, and nothing is left to do."""
        self._settle()

    def listen(self, listener: Listener) -> None:
        """Call a function with every notification of a worker. Replaces the previous function."""
        self._connections.listen(listener)

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call a function when a worker has died, from any thread, after all workers have ended."""
        self._connections.watch(on_death)

    def start_again(self) -> Driver:
        """Start as many workers as this cluster has, of which one has died, in the same way."""
        raise DataflowError("workers of this kind cannot be replaced", hint="start the engine again")

    def hand_over(self, successor: Cluster) -> None:
        """Let a cluster that `start_again` has returned take this one's place."""
        self._end()

    def close(self) -> None:
        """End the workers."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _settle(self, unless: PendingCall | None = None) -> bool:
        """Wait until nothing is left to do, or until the call `unless` is over. Return whether it is over."""
        earlier: list[Counts] = []
        pause = 0.0
        while True:
            with self._connections.call(Idle) as wave:
                while not wave.wait(_STALLED_SECONDS):
                    if unless is not None and unless.is_over:
                        return True
            if unless is not None and unless.wait(pause):
                return True
            if has_terminated(earlier, wave.result()):
                return unless is not None and unless.is_over
            earlier, pause = wave.result(), min(_STALLED_SECONDS, 2 * pause + 0.01)


def _start_with_keys(
    worker_host: WorkerHost, configs: Sequence[WorkerConfig], connections: WorkerConnections
) -> list[bytes]:
    """Start workers whose configurations have their keys. Return their public keys."""
    pairs = [KeyPair.new() for _ in configs]
    public_keys = [pair.public for pair in pairs]
    connections.allow(public_keys)  # workers connect as soon as they have started
    names = [key.decode() for key in public_keys]
    secrets = [pair.secret.decode() for pair in pairs]
    with_keys = zip(configs, secrets, strict=True)
    worker_host.start([replace(config, worker_keys=names, secret=secret) for config, secret in with_keys])
    return public_keys


def _start_with_tokens(worker_host: WorkerHost, configs: Sequence[WorkerConfig], enrolment: Enrolment) -> None:
    """Start workers that create their own keys and enrol."""
    with_tokens = zip(configs, enrolment.tokens, strict=True)
    endpoint = enrolment.endpoint
    worker_host.start([replace(config, enrolment=endpoint, token=token) for config, token in with_tokens])


def _can_be_held(command: Command) -> bool:
    """Whether a command has no visible effect until another command or request follows it."""
    match command:
        case Push():
            return len(command.changes) <= HELD_COMMAND_ROWS
        case Stage():
            return not command.columns or len(command.columns[0]) <= HELD_COMMAND_ROWS
    return isinstance(command, CreateInput | Demand)


def has_terminated(earlier: Sequence[Counts], later: Sequence[Counts]) -> bool:
    """Whether two waves of counts prove that nothing was left to do at the end of the first.

    >>> counts = [Counts(3, 2, 7), Counts(2, 3, 7)]
    >>> has_terminated(counts, counts)
    True

    One wave with equal sums proves nothing. Here the first worker answered before a message reached it, and the second
    worker answered after it had received the reply to that message: one message is counted on each side, but not the
    same one.

    >>> has_terminated([Counts(0, 0, 7), Counts(1, 1, 7)], [Counts(2, 1, 7), Counts(1, 1, 7)])
    False

    Nor do two waves prove anything if a command was sent in between.

    >>> has_terminated(counts, [Counts(3, 2, 8), Counts(2, 3, 8)])
    False
    """
    if len(later) == 1:
        return True
    if not earlier or any(one.taken != other.taken for one, other in zip(earlier, later, strict=True)):
        return False
    return sum(counts.received for counts in earlier) == sum(counts.sent for counts in later)
