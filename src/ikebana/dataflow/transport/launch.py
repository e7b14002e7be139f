"""Worker processes: how they are started, and how they end, whatever happens.

A worker runs in a process of its own, a fresh interpreter rather than a fork. What it must know (its `Seat`, with
the keys) is written to its standard input: it is in no file, on no command line and in no environment.

*Lifelines.* Every worker holds the one writing end of a pipe; the driver and all other workers hold reading ends.
The driver holds the writing ends of the workers' standard inputs. The kernel closes a pipe when its holder ends,
however that happens, so everybody learns at once of everybody's end. One for all: when any worker ends, the others
end too, and when the driver ends, all do (`stand_guard`). This needs no messages, no clock and no goodwill, and
holds while a worker computes. In case a process of somebody else's holds a copy of an end, processes are also
looked at directly, at least once a second.

Guaranteed: after `Children.close` no process is left. It asks (the caller has told the workers to stop), then
closes their lifelines, then kills. Not guaranteed: anything on systems without POSIX pipes and process groups.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from ikebana.dataflow.transport.curve import Keys
from ikebana.errors import DataflowError

LOST = 75
"""Exit code of a worker that ends because the driver or another worker did."""

CRASHED = 70
"""Exit code of a worker that ends because of an exception, after reporting it."""

_MODULE = "ikebana.dataflow.transport"
_LOOK = 0.9
_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Seat:
    """What a worker process is told about itself and its cluster."""

    index: int
    workers: int
    effort: str
    host: str
    driver: str  # where the driver listens
    driver_key: str
    worker_keys: list[str]
    secret: str = field(repr=False)
    lifeline: int = -1  # the writing end of its own pipe
    others: list[int] = field(default_factory=list)  # the reading ends of the other workers' pipes

    def to_line(self) -> bytes:
        """One line of text."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Seat:
        """The seat that a line describes."""
        return Seat(**json.loads(line))

    @property
    def keys(self) -> Keys:
        """The worker's own keys."""
        return Keys(self.worker_keys[self.index].encode(), self.secret.encode())


class Children:
    """The worker processes of a cluster, from the driver's side."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._processes: list[subprocess.Popen[bytes]] = []
        self.lifelines: list[int] = []
        self._poll = select.poll()

    @property
    def pids(self) -> list[int]:
        """Process ids, by worker."""
        return [process.pid for process in self._processes]

    def start(self, seats: Sequence[Seat]) -> None:
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
        for reading in self.lifelines:
            self._poll.register(reading, select.POLLIN)

    def _start(self, seat: Seat) -> None:
        path = [os.getcwd() if each == "" else each for each in sys.path]
        try:
            process = subprocess.Popen(
                [self._python, "-P", "-m", _MODULE],
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
        """Whether any worker has ended. Costs a microsecond."""
        return bool(self._poll.poll(0))

    def look(self) -> bool:
        """Whether any worker has ended, as the system tells."""
        return any(process.poll() is not None for process in self._processes)

    def first_ended(self, seconds: float = 1.0) -> tuple[int, int | None]:
        """The worker that ended and did not just follow another, and its exit code; waits so long to be sure."""
        deadline = time.monotonic() + seconds
        while True:
            codes = {at: each.poll() for at, each in enumerate(self._processes)}
            ended = {at: code for at, code in codes.items() if code is not None}
            causes = {at: code for at, code in ended.items() if code != LOST}
            if causes or time.monotonic() > deadline:
                return next(iter((causes or ended).items()), (-1, None))
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
        for reading in self.lifelines:
            os.close(reading)
        self.lifelines = []
        self._poll = select.poll()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return


def how_ended(code: int) -> str:
    """A process's end in words.

    >>> how_ended(-9), how_ended(3)
    ('it was killed by SIGKILL', 'it ended with exit code 3')
    """
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def take_seat() -> Seat:
    """In a worker process: what the driver has written to the standard input."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(LOST)  # the driver has gone before it said anything
    return Seat.from_line(line)


def stand_guard(seat: Seat) -> None:
    """In a worker process: end it as soon as the driver or any other worker ends."""
    driver = sys.stdin.fileno()
    poll = select.poll()
    for each in (driver, *seat.others):
        poll.register(each, select.POLLIN)
    for each in (driver, seat.lifeline, *seat.others):
        os.set_inheritable(each, False)
    threading.Thread(target=_guard, args=(poll, driver, os.getppid()), name="guard", daemon=True).start()


def _guard(poll: select.poll, driver: int, parent: int) -> None:
    while os.getppid() == parent:
        ended = [each for each, _ in poll.poll(_LOOK * 1000)]
        if ended:
            if driver not in ended:
                time.sleep(_GRACE / 2)  # when all are told to stop, one is the first: time to stop in order
            break
    os._exit(LOST)
