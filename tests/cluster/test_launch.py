"""Workers in interpreters of their own, as users start them: what they are given, and how they start and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.processes import Processes
from ikebana.errors import DataflowError, DroppedError
from ikebana.runtime.messages import Advance, Read
from tests.clusters import SOON, all_end, endless, is_running, program


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(2) as cluster:
        yield cluster


def test_same_answers_as_in_one_process(two: Processes) -> None:
    assert program(two) == program(InProcess(1))


def test_keys_are_on_no_command_line_and_in_no_environment(two: Processes) -> None:
    for pid in two.pids:
        process = psutil.Process(pid)
        visible = [*process.cmdline(), *process.environ().values()]
        assert not any(two._connections._sockets._keys.public.decode() in text or "secret" in text for text in visible)


def test_a_killed_worker_is_named_and_takes_all_with_it() -> None:
    cluster = Processes(2)
    view, pids = endless(cluster), cluster.pids
    threading.Timer(0.3, os.kill, (pids[1], signal.SIGKILL)).start()
    start = time.monotonic()
    with pytest.raises(DataflowError, match=r"worker 1 has died\n.*killed by SIGKILL"):
        view.read()
    assert time.monotonic() - start < SOON
    assert not any(map(is_running, pids))
    for call in (view.read, cluster.run, lambda: cluster.command(Advance(9)), lambda: cluster.ask(Read("edges", (0,)))):
        with pytest.raises(DataflowError, match="worker 1 has died"):
            call()
    cluster.close()
    cluster.close()


def test_closing_ends_everything_and_can_be_repeated() -> None:
    descriptors = psutil.Process().num_fds()
    cluster = Processes(1)
    pids = cluster.pids
    cluster.close()
    assert not any(map(is_running, pids))
    assert psutil.Process().num_fds() <= descriptors
    cluster.close()
    with pytest.raises(DroppedError, match="close"):
        cluster.run()


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/no/such/python", "cannot start worker 0\n.*FileNotFoundError"),
        ("/bin/false", "worker . has died\n.*exit code 1"),
    ],
    ids=["missing", "failing"],
)
def test_workers_that_do_not_start(python: str, reason: str) -> None:
    descriptors, children = psutil.Process().num_fds(), psutil.Process().children()
    with pytest.raises(DataflowError, match=reason):
        Processes(2, python=python)
    assert psutil.Process().num_fds() <= descriptors
    assert psutil.Process().children() == children


def test_addresses_and_numbers_that_cannot_be() -> None:
    with pytest.raises(DataflowError, match=r"cannot listen on '203\.0\.113\.7'"):
        Processes(1, host="203.0.113.7")
    with pytest.raises(DataflowError, match="cannot start 0 workers"):
        Processes(0)


DRIVER = """
import sys, time
from ikebana.cluster.processes import Processes
from tests.clusters import endless

if __name__ == "__main__":
    cluster = Processes(2)
    view = endless(cluster)
    print(*cluster.pids, flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "signals", "code"),
    [
        ("time.sleep(1000)", [signal.SIGKILL], -signal.SIGKILL),
        ("view.read()", [signal.SIGINT], -signal.SIGINT),
        ("sys.exit(3)", [], 3),
    ],
    ids=["driver killed", "interrupted", "not closed"],
)
def test_no_worker_outlives_its_driver(then: str, signals: list[signal.Signals], code: int) -> None:
    script = textwrap.dedent(DRIVER).format(then=then)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    for number in signals:
        driver.send_signal(number)
    driver.wait(SOON)
    assert all_end(pids)
    assert driver.returncode == code
    driver.communicate()
