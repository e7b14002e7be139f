"""Workers in processes, wherever these are: the driver's side.

Workers are connected with the driver and with each other, and changes that they exchange never pass through the
driver. `hosting` says what is asked of whoever starts their processes, `line` how the driver sends and receives,
`wire` how messages are written, `memory` how large ones pass between processes on one host, `curve` who may connect,
`station` what a worker process does, `calls` what is asked of it, and `guest` how others can speak with workers.

Order. A worker takes what one thread of the driver sends in the order it was sent, commands and requests alike, so
that a request needs no acknowledgement of the commands before it. Commands that have no effect until another comes
(a few changes at an epoch that is still open or in a transaction, a demand that nobody waits for yet) are held and
travel with the next.

Rest. Nothing is left to do when no worker has work and no letter is under way. Workers answer `Idle` when they
have no work, with how many letters they have sent and received. When as many had been received by the first of
two such waves as had been sent by the second, then nothing was under way between the two and nothing was sent
since: the four-counter method (Mattern, 1987). Only commands could start anything; if any came in between, which
the workers count too, there is another wave.

Ends. When a worker ends, however it does, all calls under way and every later one raise an error that says which
worker it was and how it ended, and no process is left. `close`, leaving the program and losing the last reference to
the cluster end the processes too. An interrupt (Ctrl-C) leaves the cluster usable.

Threads. Any number of them can use a cluster. None waits for what another has asked.

Cost: a request to all workers and back takes 0.25 ms with one worker and 0.43 ms with two, on two busy cores (0.21 and
0.37 ms when the caller itself owned the socket, and only one could ask at a time).
Not guaranteed: use from a fork of this process; a bound on what a driver that does not wait for its workers can have
under way; anything when a worker is stopped rather than ended.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from ikebana.cluster import Listener, codec
from ikebana.cluster.authentication import Keys, Sockets
from ikebana.cluster.client import ClientCredentials
from ikebana.cluster.connections import PendingCall, WorkerConnections
from ikebana.cluster.hosts import WorkerHost
from ikebana.cluster.interrupts import deferred
from ikebana.cluster.launch import WorkerConfig
from ikebana.cluster.protocol import Ask, Counts, Idle
from ikebana.cluster.shared_memory import SharedMemory
from ikebana.errors import DataflowError
from ikebana.runtime.messages import Command, CreateInput, Demand, Install, Push, Request, Stage, unanswerable

_STALLED = 1.0
"""After so many seconds without an answer, find out whether there is anything left to do, and then now and again."""

_FEW = 1000
"""So many changes are held until the next command; more of them start on their way at once."""


class Driver:
    """W workers, each in a process, started by a host."""

    def __init__(
        self,
        hosting: WorkerHost,
        workers: int,
        *,
        effort: str = "default",
        host: str = "127.0.0.1",
        workers_host: str | None = None,
        patience: float = 120.0,
        memory: int | None = None,
        view_memory: int | None = None,
    ) -> None:
        """Start the workers, and return when all are there.

        `host` is the address on which the driver listens, `workers_host` the one on which workers do (the same if
        none is given), and `patience` how many seconds starting may take. `memory` is how many bytes each worker may
        use, by default its share of the machine's, and `view_memory` each view there, by default half of that
        (`ikebana.runtime.memory_budget`).
        """
        if workers < 1:
            raise DataflowError(f"cannot start {workers} workers", hint="give at least one")
        keys, guest, theirs = Keys.new(), Keys.new(), [Keys.new() for _ in range(workers)]
        public = [each.public for each in theirs]
        sockets = Sockets(keys, public, host, heartbeat=hosting.watches_connections)
        shared = SharedMemory(workers, copies=True)  # what comes here goes to users
        self._line = WorkerConnections(sockets, hosting, workers, shared)
        self._end = weakref.finalize(self, self._line.close)
        seats = [
            WorkerConfig(
                index=index,
                workers=workers,
                effort=effort,
                host=host if workers_host is None else workers_host,
                driver=self._line.endpoint,
                driver_key=keys.public.decode(),
                worker_keys=[each.decode() for each in public],
                guest_key=guest.public.decode(),
                secret=each.secret.decode(),
                ledger=list(shared.address or ()),
                memory=memory,
                view_memory=view_memory,
                watches_connections=hosting.watches_connections,
            )
            for index, each in enumerate(theirs)
        ]
        try:
            hosting.start(seats)
            hellos = self._line.open(public, patience)
        except BaseException:
            with deferred():
                self._end()
            raise
        self.pids = [hello.pid for hello in hellos]
        """The process of each worker, on its machine."""
        self.invitation = ClientCredentials(tuple(hello.door for hello in hellos), tuple(public), guest)
        """For guests, who may speak with the workers directly (`ikebana.cluster.client`)."""

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._line.size

    @property
    def runs_by_itself(self) -> bool:
        """True: workers run in processes of their own."""
        return True

    # What the engine asks for (`ikebana.cluster.Cluster`).

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one."""
        sent = codec.seal(command) if isinstance(command, Install) else command
        self._line.send(sent, worker, hold=_can_be_held(command))

    def ask(self, request: Request, worker: int | None = None) -> list[Any]:
        """The answers of all workers, or of one."""
        with self._line.call(partial(Ask, request=request), worker) as call:
            if not call.wait(_STALLED) and not self._settle(unless=call):
                raise unanswerable(request)
            return call.result()

    def run(self) -> None:
        """Return when all commands sent so far were taken, and nothing is left to do."""
        self._settle()

    def listen(self, listener: Listener) -> None:
        """Give news of workers to a function, in place of the one before."""
        self._line.listen(listener)

    def close(self) -> None:
        """End the workers."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _settle(self, unless: PendingCall | None = None) -> bool:
        """Wait until nothing is left to do, or until a call is over; returns whether it is."""
        earlier: list[Counts] = []
        pause = 0.0
        while True:
            with self._line.call(Idle) as wave:
                while not wave.wait(_STALLED):
                    if unless is not None and unless.is_over:
                        return True
            if unless is not None and unless.wait(pause):
                return True
            if is_rest(earlier, wave.result()):
                return unless is not None and unless.is_over
            earlier, pause = wave.result(), min(_STALLED, 2 * pause + 0.01)


def _can_be_held(command: Command) -> bool:
    """Whether a command has no effect that anybody could notice before another command or request follows it."""
    match command:
        case Push():
            return len(command.changes) <= _FEW
        case Stage():
            return not command.columns or len(command.columns[0]) <= _FEW
    return isinstance(command, CreateInput | Demand)


def is_rest(earlier: Sequence[Counts], later: Sequence[Counts]) -> bool:
    """Whether two waves of counts prove that nothing was left to do at the end of the first.

    >>> counts = [Counts(3, 2, 7), Counts(2, 3, 7)]
    >>> is_rest(counts, counts)
    True

    One wave in which the sums agree proves nothing. Here the first worker was asked before a letter reached it; the
    second got its answer to that letter before it was asked; so one letter is counted on each side, but not the same.

    >>> is_rest([Counts(0, 0, 7), Counts(1, 1, 7)], [Counts(2, 1, 7), Counts(1, 1, 7)])
    False

    Nor do two, if a command came in between.

    >>> is_rest(counts, [Counts(3, 2, 8), Counts(2, 3, 8)])
    False
    """
    if len(later) == 1:
        return True
    if not earlier or any(one.taken != other.taken for one, other in zip(earlier, later, strict=True)):
        return False
    return sum(each.received for each in earlier) == sum(each.sent for each in later)
