"""Calls, tasks and drivers that are interrupted or fail: nothing is counted twice, and nothing is left behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.clusters import SOON, all_end, within
from tests.spark.drivers import TIMEOUT, script

pytestmark = pytest.mark.spark


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


def test_attempts_that_fail_never_count() -> None:
    with script("attempt_twice") as driver:
        assert driver.says() == {"rows": [1000, 1000], "sum": sum(range(1000)), "failed": 4}
        said = driver.says()
        assert said["copied"] == 1000 and said["active"]
        assert driver.process.wait(TIMEOUT) == 0
        assert all_end(said["pids"])
