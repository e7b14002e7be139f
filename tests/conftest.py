"""Hypothesis profiles, and which tests run in which profile.

The profile is chosen by IKEBANA_PROFILE: see `tests.profiles`.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.profiles import EXAMPLES, PROFILE
from tests.storage.s3_server import S3Server

for name, examples in EXAMPLES.items():
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],  # a busy machine is slow, and so is the first use of a kernel
        derandomize=False,
        print_blob=True,
    )
settings.load_profile(PROFILE)

SPARK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of all sessions that do not have others: over few rows, tasks and generated code take most of the time."""

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
"""Java without its optimising compiler, which takes more time than it saves in processes that end after minutes, and
without the collections of garbage that it does whenever it has loaded some more classes."""

os.environ.setdefault("IKEBANA_PROGRAM_ERRORS", "raise")  # also in worker processes
os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA)
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", " ".join(f"--conf {key}={SPARK[key]}" for key in SPARK) + " pyspark-shell")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as for `make test &`: the processes of tests would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

RUNS_IN = {"thorough": ("thorough", "soak"), "soak": ("soak",)}
"""The profiles in which tests with a marker run; tests without one run in all of them."""


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that the profile leaves out; start with the tests on Spark, whose files take longest."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        for marker, profiles in RUNS_IN.items():
            if item.get_closest_marker(marker) and PROFILE not in profiles:
                item.add_marker(pytest.mark.skip(reason=f"runs only with IKEBANA_PROFILE={profiles[0]}"))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_collection_finish() -> None:
    """Let garbage collections leave out the modules and the tests, which are most of all objects and live for ever."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def small_sweeps_are_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small sweeps run as programs, whatever IKEBANA_FUSE says: for tests that count programs."""
    from ikebana.runtime import program

    monkeypatch.setattr(program, "FUSE", "small")


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Let objects be freed by their reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Let clusters of processes fork their workers from a process that has imported everything, which is quick."""
    from ikebana.cluster import processes
    from tests.forked_workers import ForkedProcesses, fork_server

    fork_server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "ChildProcesses", ForkedProcesses)
        yield


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An object store."""
    with S3Server() as server:
        yield server
