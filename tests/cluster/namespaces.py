"""Several hosts on one machine: network namespaces behind a bridge, each with its own processes and process ids."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Self

from ikebana.cluster.launch import WORKER_MODULE, ChildProcesses, WorkerConfig

_PREFIX = "10.213.7."
DRIVER = f"{_PREFIX}1"
"""The address of this process among the hosts."""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@cache
def why_not() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    if not sys.platform.startswith("linux") or not shutil.which("ip") or not shutil.which("unshare"):
        return "needs Linux with ip and unshare"
    try:
        with Hosts(1):
            _run("ip", "netns", "exec", _namespace(0), "unshare", "--pid", "--fork", "--mount-proc", "true")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"may not create network namespaces: {getattr(error, 'stderr', '') or error}".strip()
    return ""


def _namespace(at: int) -> str:
    return f"ikebana{os.getpid()}n{at}"


class Hosts:
    """A number of hosts, at `addresses`."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"{_PREFIX}{11 + at}" for at in range(count)]
        self._bridge, self._links = f"ikb{os.getpid()}", [f"ikb{os.getpid()}v{at}" for at in range(count)]

    def __enter__(self) -> Self:
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "addr", "add", f"{DRIVER}/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for at, (link, address) in enumerate(zip(self._links, self.addresses, strict=True)):
                name = _namespace(at)
                _run("ip", "netns", "add", name)
                _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
                _run("ip", "link", "set", link, "master", self._bridge, "up")
                _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    _run("ip", "-n", name, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def unplug(self, at: int) -> None:
        """Cut a host off from the others: nothing arrives there, and nobody is told."""
        _run("ip", "link", "set", self._links[at], "nomaster")

    def __exit__(self, *_: object) -> None:
        for at in range(len(self.addresses)):
            subprocess.run(["ip", "netns", "del", _namespace(at)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)


class OnHosts(ChildProcesses):
    """Starts each worker on a host of its own."""

    watches_connections = True
    keeps_secrets = False

    def __init__(self, hosts: Hosts) -> None:
        super().__init__(sys.executable)
        self._hosts = hosts

    def start(self, configs: Sequence[WorkerConfig]) -> None:
        at_home = [replace(config, host=self._hosts.addresses[config.index]) for config in configs]
        super().start(at_home)

    def _spawn(self, config: WorkerConfig, path: list[str]) -> Any:
        inside = ["ip", "netns", "exec", _namespace(config.index)]
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return subprocess.Popen(
            [*inside, *alone, self._python, "-P", "-m", WORKER_MODULE],
            stdin=subprocess.PIPE,
            bufsize=0,
            pass_fds=[config.exit_pipe, *config.peer_exit_pipes],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            process_group=0,
        )
