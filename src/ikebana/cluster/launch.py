"""Worker processes on this machine: how they are started, and how they end, whatever happens.

A worker runs in a process of its own, a fresh interpreter rather than a fork. What it must know (its `WorkerConfig`,
with the keys) is written to its standard input: it is in no file, on no command line and in no environment.

*Lifelines.* Every worker holds the one writing end of a pipe; the driver and all other workers hold reading ends.
The driver holds the writing ends of the workers' standard inputs. The kernel closes a pipe when its holder ends,
however that happens, so everybody learns at once of everybody's end. One for all: when any worker ends, the others
end too, and when the driver ends, all do (`exit_with_driver`). This needs no messages, no clock and no goodwill, and
holds while a worker computes. In case a process of somebody else's holds a copy of an end, processes are also
looked at directly, at least once a second.

Where workers are on several machines there are no common pipes. Then their connections stand in for them: a worker
ends when its connection to the driver or to any other worker is lost (`end_with`).

Guaranteed: after `ChildProcesses.close` no process is left. It asks (the caller has told the workers to stop), then
closes their lifelines, then kills. Not guaranteed: anything on systems without POSIX pipes and process groups.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

import zmq

from ikebana.cluster.authentication import Keys, Socket
from ikebana.cluster.hosts import WorkerExit, how_ended
from ikebana.errors import DataflowError

LOST = 75
"""Exit code of a worker that ends because the driver or another worker did."""

CRASHED = 70
"""Exit code of a worker that ends because of an exception, after reporting it."""

MODULE = "ikebana.cluster"
"""What a worker process runs."""

_PR_SET_PDEATHSIG = 1
_LOOK = 0.9
_GRACE = 1.0
_SURE = 1.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker process is told about itself and its cluster."""

    index: int
    workers: int
    effort: str
    host: str
    driver: str  # where the driver listens
    driver_key: str
    worker_keys: list[str]
    guest_key: str
    secret: str = field(repr=False)
    ledger: list[int] = field(default_factory=list)  # the driver's: see `memory`
    memory: int | None = None  # bytes that it may use; its share of the machine's if none
    view_memory: int | None = None  # bytes that a view may use there
    watches_connections: bool = False  # to the driver and to its peers, in place of pipes
    lifeline: int = -1  # the writing end of its own pipe
    others: list[int] = field(default_factory=list)  # the reading ends of the other workers' pipes

    def to_line(self) -> bytes:
        """One line of text."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> WorkerConfig:
        """The seat that a line describes."""
        return WorkerConfig(**json.loads(line))

    @property
    def keys(self) -> Keys:
        """The worker's own keys."""
        return Keys(self.worker_keys[self.index].encode(), self.secret.encode())


class ChildProcesses:
    """Hosts workers (`ikebana.cluster.hosts.WorkerHost`) as child processes of the driver."""

    watches_connections = False

    def __init__(self, python: str) -> None:
        self._python = python
        self._processes: list[subprocess.Popen[bytes]] = []
        self.lifelines: list[int] = []

    def start(self, seats: Sequence[WorkerConfig]) -> None:
        """Start a process for each seat. When one cannot be started, those that were are for `close` to end."""
        pipes = [os.pipe() for _ in seats]
        self.lifelines = [reading for reading, _ in pipes]
        try:
            for seat, (_, writing) in zip(seats, pipes, strict=True):
                others = [reading for at, reading in enumerate(self.lifelines) if at != seat.index]
                self._start(replace(seat, lifeline=writing, others=others))
        finally:
            for _, writing in pipes:
                os.close(writing)

    def _start(self, seat: WorkerConfig) -> None:
        path = [os.getcwd() if each == "" else each for each in sys.path]
        try:
            process = subprocess.Popen(
                [self._python, "-P", "-m", MODULE],
                stdin=subprocess.PIPE,
                bufsize=0,
                pass_fds=[seat.lifeline, *seat.others],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                process_group=0,  # Ctrl-C is for the driver
            )
        except OSError as error:
            raise DataflowError(
                f"cannot start worker {seat.index}",
                detail=f"running {self._python!r} gave {type(error).__name__}: {error}",
                hint="`python` must be a Python interpreter that has ikebana's dependencies",
            ) from error
        self._processes.append(process)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already; its lifeline tells
            process.stdin.write(seat.to_line())

    def any_ended(self) -> bool:
        """Whether any worker has ended. Costs two microseconds."""
        poll = select.poll()  # of its own: others may ask at the same time
        for reading in self.lifelines:
            poll.register(reading, select.POLLIN)
        return bool(poll.poll(0))

    def look(self) -> bool:
        """Whether any worker has ended, as the system tells."""
        return any(process.poll() is not None for process in self._processes)

    def first_ended(self, lost: Sequence[int] = ()) -> WorkerExit | None:
        """The worker that ended and did not just follow another; waits a second at most to be sure."""
        deadline = time.monotonic() + _SURE
        while True:
            codes = {at: each.poll() for at, each in enumerate(self._processes)}
            ended = {at: code for at, code in codes.items() if code is not None}
            causes = {at: code for at, code in ended.items() if code != LOST}
            if causes or time.monotonic() > deadline:
                found = next(iter((causes or ended).items()), None)
                return found and WorkerExit(found[0], how_ended(found[1]), crashed=found[1] == CRASHED)
            time.sleep(0.005)

    def close(self) -> None:
        """Wait for the processes that were told to stop, and end those that do not."""
        self._wait(_GRACE)
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        self._wait(_GRACE)
        for process in self._processes:
            process.kill()
            process.wait()
        lifelines, self.lifelines = self.lifelines, []
        for reading in lifelines:
            os.close(reading)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return


def read_config() -> WorkerConfig:
    """In a worker process: what the driver has written to the standard input."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(LOST)  # the driver has gone before it said anything
    return WorkerConfig.from_line(line)


def exit_with_driver(seat: WorkerConfig) -> None:
    """In a worker process: end it as soon as the driver or any other worker ends."""
    driver = sys.stdin.fileno()
    if seat.watches_connections:
        _die_with_parent()
    poll = select.poll()
    for each in (driver, *seat.others):
        poll.register(each, select.POLLIN)
    for each in (driver, seat.lifeline, *seat.others):
        if each >= 0:
            os.set_inheritable(each, False)
    threading.Thread(target=_guard, args=(poll, driver, os.getppid()), name="guard", daemon=True).start()


def _die_with_parent() -> None:
    """Let the kernel kill this process with its parent, where it can: also when this process does not get to look.

    Only for a parent whose thread that started this process lives as long as this process should.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _guard(poll: select.poll, driver: int, parent: int) -> None:
    while os.getppid() == parent:
        ended = [each for each, _ in poll.poll(_LOOK * 1000)]
        if ended:
            if driver not in ended:
                time.sleep(_GRACE / 2)  # when all are told to stop, one is the first: time to stop in order
            break
    os._exit(LOST)


def end_with(watches: Sequence[Socket], *, in_order: bool = False) -> Callable[[], None]:
    """In a worker process: end it when any of the watched connections is lost; `in_order`, after a little while.

    When all are told to stop, one is the first to do so: the others get time to stop in order. Returns a function that
    ends the watching, to be called before the sockets are closed.
    """
    ear, mouth = socket.socketpair()
    thread = threading.Thread(target=_end_with, args=(watches, ear, in_order), name="watch", daemon=True)
    thread.start()

    def stop() -> None:
        mouth.send(b"\0")
        thread.join()

    return stop


def _end_with(watches: Sequence[Socket], ear: socket.socket, in_order: bool) -> None:
    poller = zmq.Poller()
    for each in (ear, *watches):
        poller.register(each, zmq.POLLIN)
    if ear.fileno() in dict(poller.poll()):
        return
    if in_order and select.select([ear], [], [], _GRACE / 2)[0]:
        return
    os._exit(LOST)
