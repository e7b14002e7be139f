"""Worker processes that are forks of a process which has imported everything: the tests start many.

A worker process spends 1.6 s of processor time on its imports and kernels, more than most tests spend on everything
else. `ForkedProcesses` differs from `ikebana.cluster.launch.ChildProcesses` in how a process comes into being, and in
nothing else: a fork is a child of the driver, has a process group, a standard input and the descriptors of its own, and
runs the same `main`. The server forks twice, and the driver adopts the fork when the process between them has ended
(it is a "child subreaper" for that moment, which only Linux has).

`python -m tests.forked_workers <descriptor>` is the server. It has one thread, and ends with its client.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from functools import cache
from typing import Any

from ikebana.cluster.launch import WORKER_MODULE, ChildProcesses, WorkerConfig

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_MOST_DESCRIPTORS = 64
_MOST_BYTES = 1 << 20
_FIRST_FREE = 1000
"""Descriptors from here on are not those of a worker."""


class ForkedProcesses(ChildProcesses):
    """Workers as forks of the server; processes of another interpreter are started as usual."""

    def _spawn(self, config: WorkerConfig, path: list[str]) -> Any:
        if self._python != sys.executable:
            return super()._spawn(config, path)
        reading, writing = os.pipe()
        try:
            pid = fork_server().fork(reading, [config.exit_pipe, *config.peer_exit_pipes], path)
        finally:
            os.close(reading)
        return ForkedProcess(pid, writing)


class ForkedProcess:
    """What the driver needs of a `subprocess.Popen`, of a child that another process has forked."""

    def __init__(self, pid: int, stdin: int) -> None:
        self.pid, self.stdin = pid, os.fdopen(stdin, "wb", buffering=0)
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            _wait_for_end(self.pid, timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a forked worker", timeout or 0)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _wait_for_end(pid: int, timeout: float | None) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:  # it has ended, and another thread knows its exit code
        return
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll(None if timeout is None else 1000 * timeout)
    finally:
        os.close(descriptor)


def fork_worker(environ: dict[str, str]) -> ForkedProcess:
    """Fork a worker from this process, which has imported everything, with these environment variables."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        path = environ["PYTHONPATH"].split(os.pathsep)
        _become_worker({"targets": [0], "path": path, "folder": os.getcwd(), "environ": environ}, [reading])
    os.close(reading)
    return ForkedProcess(pid, writing)


class ForkServer:
    """The client of a server process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.forked_workers", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)},
                process_group=0,
            )
        if not self._socket.recv(1):
            raise RuntimeError("the server that forks workers has not started")

    def fork(self, stdin: int, descriptors: list[int], path: list[str]) -> int:
        """Fork a worker, and return its process id; the descriptors keep their numbers in the worker."""
        order = {"targets": [0, 1, 2, *descriptors], "path": path, "folder": os.getcwd(), "environ": dict(os.environ)}
        with self._lock, _Adopting():
            socket.send_fds(self._socket, [json.dumps(order).encode()], [stdin, 1, 2, *descriptors])
            return int(self._socket.recv(32))


@cache
def fork_server() -> ForkServer:
    """The server of this process, started when it is first needed."""
    return ForkServer()


class _Adopting:
    """Orphans below this process become its children."""

    def __enter__(self) -> None:
        self._set(1)

    def __exit__(self, *_: object) -> None:
        self._set(0)

    def _set(self, value: int) -> None:
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "this system does not let a process adopt orphans")


def serve(control: socket.socket) -> None:
    """The server's loop."""
    control.send(b"\0")
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, _MOST_DESCRIPTORS)
        if not order:
            return
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker == 0:
                _become_worker(json.loads(order), descriptors)
            os.write(writing, b"%d" % worker)
            os._exit(0)
        os.waitpid(between, 0)
        control.send(os.read(reading, 32))
        for descriptor in (reading, writing, *descriptors):
            os.close(descriptor)


def _become_worker(order: dict[str, Any], descriptors: list[int]) -> None:
    """In a fork: run a worker, and exit."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, WORKER_MODULE.encode())
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for descriptor in descriptors]
        os.closerange(3, _FIRST_FREE)
        for descriptor, target in zip(moved, order["targets"], strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.setpgid(0, 0)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environ"])
        sys.path[:] = order["path"]

        from ikebana.cluster.worker_process import main

        main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    from ikebana.pandas_import import postpone_pandas

    postpone_pandas()

    from ikebana import kernels

    kernels.load()
    gc.freeze()  # a collection in a fork would copy the memory that it visits
    serve(socket.socket(fileno=int(sys.argv[1])))
