"""Worker processes on this machine: how they are started, and how they end, whatever happens.

A worker runs in a process of its own, a new interpreter and not a fork. Its `WorkerConfig`, which includes its secret
key, is written to its standard input, so that the key is in no file, on no command line and in no environment.

*Exit pipes.* Every worker holds the only writing end of a pipe; the driver and all other workers hold reading ends. The
driver holds the writing ends of the workers' standard inputs. When a process ends, for whatever reason, the kernel
closes its ends, so all other processes notice at once. When any worker ends, the others end too, and when the driver
ends, all workers end (`exit_with_driver`). This needs no messages and no clock, and works while a worker computes.
In case an unrelated process has inherited one of the ends, the processes themselves are also checked, at least once a
second.

Workers on several machines have no common pipes. There, connections take the place of pipes: a worker exits when its
connection to the driver or to any other worker is lost (`exit_with`).

Guaranteed: after `ChildProcesses.close` no process is left. It waits for the workers, which the caller has told to
stop, then closes their standard inputs, then kills them. Not guaranteed: anything on systems without POSIX pipes and
process groups.
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

from ikebana.cluster.authentication import KeyPair, Socket
from ikebana.cluster.hosts import WorkerExit, how_ended
from ikebana.cluster.network import ListenAddress
from ikebana.errors import DataflowError

EXIT_CODE_LOST = 75
"""Exit code of a worker that ends because the driver or another worker has ended."""

EXIT_CODE_CRASHED = 70
"""Exit code of a worker that ends because of an exception, which it has reported."""

WORKER_MODULE = "ikebana.cluster"
"""The module that a worker process runs."""

_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_SECONDS = 0.9
"""How often a worker checks whether its parent is alive."""

_GRACE_SECONDS = 1.0
"""How long processes get to end by themselves, before the next, harder attempt."""

_CAUSE_SECONDS = 1.0
"""How long to wait for the exit code of the worker that ended first."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The configuration of a worker process."""

    index: int
    workers: int
    effort: str
    host: str  # where others connect to
    driver: str  # the driver's endpoint
    driver_key: str
    bind: str = ""  # the address to listen on, if it is another one than `host`
    ports: list[int] = field(default_factory=list)  # the first and the last port that may be used
    worker_keys: list[str] = field(default_factory=list)
    secret: str = field(default="", repr=False)  # the worker's own; empty if it must enrol
    enrolment: str = ""  # the endpoint at which to enrol (`ikebana.cluster.enrolment`)
    token: str = field(default="", repr=False)  # with which to enrol, once
    control_block: list[int] = field(default_factory=list)  # the driver's (`ikebana.cluster.shared_memory`)
    memory: int | None = None  # the worker's limit in bytes; by default its share of the machine's memory
    view_memory: int | None = None  # the limit of a view on the worker, in bytes
    spill: str | None = None  # the directory for large batches (`ikebana.encoding.spill_files`)
    spill_bytes: int | None = None  # the size of a large batch
    watches_connections: bool = False  # exit when a connection is lost, instead of when a pipe is closed
    exit_pipe: int = -1  # the writing end of its own pipe
    peer_exit_pipes: list[int] = field(default_factory=list)  # the reading ends of the other workers' pipes

    def to_line(self) -> bytes:
        """The configuration as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> WorkerConfig:
        """The configuration that `to_line` has written."""
        return WorkerConfig(**json.loads(line))

    @property
    def listen_address(self) -> ListenAddress:
        """Where the worker listens."""
        return ListenAddress(self.host, self.bind, (self.ports[0], self.ports[1]) if self.ports else None)

    @property
    def keys(self) -> KeyPair:
        """The worker's own key pair."""
        return KeyPair(self.worker_keys[self.index].encode(), self.secret.encode())


class ChildProcesses:
    """Runs workers as child processes of the driver (a `ikebana.cluster.hosts.WorkerHost`)."""

    watches_connections = False
    keeps_secrets = True

    def __init__(self, python: str) -> None:
        self._python = python
        self._processes: list[subprocess.Popen[bytes]] = []
        self.exit_fds: list[int] = []

    def start(self, configs: Sequence[WorkerConfig]) -> None:
        """Start a process for each configuration. If one cannot be started, `close` ends the others."""
        pipes = [os.pipe() for _ in configs]
        self.exit_fds = [reading for reading, _ in pipes]
        try:
            for config, (_, writing) in zip(configs, pipes, strict=True):
                others = [reading for at, reading in enumerate(self.exit_fds) if at != config.index]
                self._start(replace(config, exit_pipe=writing, peer_exit_pipes=others))
        finally:
            for _, writing in pipes:
                os.close(writing)

    def _start(self, config: WorkerConfig) -> None:
        path = [os.getcwd() if folder == "" else folder for folder in sys.path]
        try:
            process = self._spawn(config, path)
        except OSError as error:
            raise DataflowError(
                f"cannot start worker {config.index}",
                detail=f"running {self._python!r} raised {type(error).__name__}: {error}",
                hint="`python` must be a Python interpreter that has ikebana's dependencies",
            ) from error
        self._processes.append(process)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, which its exit pipe shows
            process.stdin.write(config.to_line())

    def _spawn(self, config: WorkerConfig, path: list[str]) -> subprocess.Popen[bytes]:
        """Start a process that imports modules from `path` and waits for its configuration."""
        return subprocess.Popen(
            [self._python, "-P", "-m", WORKER_MODULE],
            stdin=subprocess.PIPE,
            bufsize=0,
            pass_fds=[config.exit_pipe, *config.peer_exit_pipes],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            process_group=0,  # Ctrl-C interrupts only the driver
        )

    def any_ended(self) -> bool:
        """Whether any worker has ended, according to the exit pipes. Takes two microseconds."""
        poll = select.poll()  # a new one, since other threads may call this at the same time
        for reading in self.exit_fds:
            poll.register(reading, select.POLLIN)
        return bool(poll.poll(0))

    def check_processes(self) -> bool:
        """Whether any worker has ended, according to the operating system."""
        return any(process.poll() is not None for process in self._processes)

    def first_ended(self, lost: Sequence[int] = ()) -> WorkerExit | None:
        """The worker whose end made the others end. Waits for at most a second to be sure."""
        deadline = time.monotonic() + _CAUSE_SECONDS
        while True:
            codes = {worker: process.poll() for worker, process in enumerate(self._processes)}
            ended = {worker: code for worker, code in codes.items() if code is not None}
            causes = {worker: code for worker, code in ended.items() if code != EXIT_CODE_LOST}
            if causes or time.monotonic() > deadline:
                for worker, code in (causes or ended).items():
                    return WorkerExit(worker, how_ended(code), crashed=code == EXIT_CODE_CRASHED)
                return None
            time.sleep(0.005)

    def close(self) -> None:
        """Wait for the processes, which were told to stop, and end those that do not stop."""
        self._wait(_GRACE_SECONDS)
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        self._wait(_GRACE_SECONDS)
        for process in self._processes:
            process.kill()
            process.wait()
        pipes, self.exit_fds = self.exit_fds, []
        for reading in pipes:
            os.close(reading)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return


def read_config() -> WorkerConfig:
    """In a worker process: read the configuration that the driver has written to the standard input."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(EXIT_CODE_LOST)  # the driver has ended
    return WorkerConfig.from_line(line)


def exit_with_driver(config: WorkerConfig) -> None:
    """In a worker process: exit as soon as the driver or any other worker ends."""
    driver = sys.stdin.fileno()
    if config.watches_connections:
        _die_with_parent()
    poll = select.poll()
    for pipe in (driver, *config.peer_exit_pipes):
        poll.register(pipe, select.POLLIN)
    for pipe in (driver, config.exit_pipe, *config.peer_exit_pipes):
        if pipe >= 0:
            os.set_inheritable(pipe, False)
    threading.Thread(target=_watch_pipes, args=(poll, driver, os.getppid()), name="watch pipes", daemon=True).start()


def _die_with_parent() -> None:
    """Let the kernel kill this process with its parent, on Linux: even if this process never runs again.

    Strictly, the signal comes when the thread that has started this process ends, so that thread must live as long.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch_pipes(poll: select.poll, driver: int, parent: int) -> None:
    while os.getppid() == parent:
        closed = [pipe for pipe, _ in poll.poll(_PARENT_CHECK_SECONDS * 1000)]
        if closed:
            if driver not in closed:
                time.sleep(_GRACE_SECONDS / 2)  # perhaps all were told to stop, and a peer was first: stop in order
            break
    os._exit(EXIT_CODE_LOST)


def exit_with(watches: Sequence[Socket], *, grace: bool = False) -> Callable[[], None]:
    """In a worker process: exit when any of the watched connections is lost, with `grace` after a short time.

    When all workers are told to stop, one of them is first; with `grace`, the others get time to stop in order. Returns
    a function that ends the watching; it must be called before the sockets are closed.
    """
    stop_receiver, stop_sender = socket.socketpair()
    args = (watches, stop_receiver, grace)
    thread = threading.Thread(target=_exit_with, args=args, name="watch connections", daemon=True)
    thread.start()

    def stop() -> None:
        stop_sender.send(b"\0")
        thread.join()

    return stop


def _exit_with(watches: Sequence[Socket], stop_receiver: socket.socket, grace: bool) -> None:
    poller = zmq.Poller()
    for socket_ in (stop_receiver, *watches):
        poller.register(socket_, zmq.POLLIN)
    if stop_receiver.fileno() in dict(poller.poll()):
        return
    if grace and select.select([stop_receiver], [], [], _GRACE_SECONDS / 2)[0]:
        return
    os._exit(EXIT_CODE_LOST)
