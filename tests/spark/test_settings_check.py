"""What `connect` says about memory, encryption and placement; without Spark."""

from __future__ import annotations

import pytest

from ikebana.spark.settings_check import encryption_warning, memory_warning, placement_warning, spark_bytes
from ikebana.spark.supervisor import host_of_task

GIB = 1 << 30
CRYPTO = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1g", GIB), ("2048m", 2 * GIB), ("3", 3 << 20), ("1 GB", GIB), ("1gib", GIB), ("100b", 100), ("x", 0)],
)
def test_sizes_as_spark_writes_them(size: str, expected: int) -> None:
    assert spark_bytes(size) == expected


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:443"])
def test_memory_beside_java_must_hold_the_workers(master: str) -> None:
    settings = {"spark.executor.cores": "4", "spark.executor.memory": "8g"}
    too_little = memory_warning(master, settings, 8, 2 * GIB)
    assert too_little is not None
    assert "859 MB" in too_little and "4 workers" in too_little
    assert "spark.executor.memoryOverhead=8192m" in too_little
    assert memory_warning(master, {**settings, "spark.executor.memoryOverhead": "8192m"}, 8, 2 * GIB) is None
    assert memory_warning(master, {**settings, "spark.executor.memoryOverheadFactor": "1.0"}, 8, 2 * GIB) is None
    assert memory_warning(master, {**settings, "spark.executor.memoryOverhead": "8191m"}, 8, 2 * GIB) is not None
    assert memory_warning(master, {**settings, "spark.executor.memoryOverhead": "2g"}, 1, 2 * GIB) is None
    assert memory_warning(master, {"spark.executor.memoryOverhead": "2g"}, 8, 2 * GIB) is None  # one core
    without = memory_warning(master, settings, 8, None)
    assert without is not None and "give `memory`" in without


def test_the_memory_of_python_limits_each_process() -> None:
    settings = {"spark.executor.cores": "2", "spark.executor.pyspark.memory": "4g"}
    for master in ("yarn", "spark://host:7077"):
        warning = memory_warning(master, settings, 2, 3 * GIB)
        assert warning is not None and "2.1 GB" in warning and "3.2 GB" in warning
        assert memory_warning(master, {**settings, "spark.executor.memoryOverhead": "4g"}, 2, 2 * GIB) is None


def test_nothing_is_limited_elsewhere() -> None:
    assert memory_warning("spark://host:7077", {"spark.executor.memory": "1g"}, 8, 64 * GIB) is None
    assert memory_warning("local[4]", {"spark.executor.pyspark.memory": "1g"}, 8, 64 * GIB) is None


@pytest.mark.parametrize(
    ("settings", "is_encrypted"),
    [
        ({}, False),
        (CRYPTO, True),
        ({"spark.network.crypto.enabled": "true"}, False),  # has no effect without a secret
        ({"spark.authenticate": "true"}, False),
        ({"spark.authenticate": "true", "spark.authenticate.enableSaslEncryption": "true"}, True),
        ({"spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_keys_must_not_travel_in_the_clear(settings: dict[str, str], is_encrypted: bool) -> None:
    warning = encryption_warning(settings, "10.0.0.1", ["10.0.0.1", "10.0.0.2"])
    assert (warning is None) == is_encrypted
    if warning is not None:
        assert "spark.network.crypto.enabled=true" in warning
    assert encryption_warning(settings, "10.0.0.1", ["10.0.0.1", "10.0.0.1"]) is None  # one host


def test_workers_that_are_not_spread() -> None:
    assert placement_warning(["a", "b", "a", "b"], 2) is None
    assert placement_warning(["a", "b"], 5) is None
    assert placement_warning(["a"], 5) is None
    warning = placement_warning(["a", "a", "a", "b"], 4)
    assert warning is not None and "4 workers on 2 of 4 hosts (3 on a, 1 on b)" in warning


def test_hosts_of_tasks() -> None:
    addresses = {"node": "node", "node:1": "node", "[::1]:1": "::1", "[::1]": "::1", "10.0.0.1:42": "10.0.0.1"}
    assert {address: host_of_task(address) for address in addresses} == addresses
