"""Calls, tasks and drivers that are interrupted or fail: nothing is counted twice, and nothing is left behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.clusters import SOON, all_end, within
from tests.spark.drivers import TIMEOUT, script

pytestmark = pytest.mark.spark


def test_tasks_that_fail_never_count_twice_and_interrupts_leave_nothing(tmp_path: Path) -> None:
    with script("attempts_and_interrupts", str(tmp_path)) as driver:
        assert driver.says() == {"rows": [1000, 1000], "sum": sum(range(1000)), "failed": 4}
        assert driver.says() == {"copied": 1000, "active": True}
        for _ in range(4):
            assert driver.says() == {"interrupted": True}
        assert driver.says() == {"refused": True}
        assert not any("Traceback" in line for line in driver.errors), "".join(driver.errors)
        pids, below = driver.says()["pids"], driver.below()
        driver.process.send_signal(signal.SIGINT)
        assert within(SOON, lambda: driver.process.poll() is not None), "".join(driver.errors)
        assert all_end(pids + below)


@pytest.mark.thorough
def test_regression_an_interrupt_ends_what_the_interrupted_call_has_started(tmp_path: Path) -> None:
    with script("interrupts", str(tmp_path)) as driver:
        for _ in range(4):
            assert driver.says() == {"interrupted": True}
        assert driver.process.wait(TIMEOUT) == 0, "".join(driver.errors)
