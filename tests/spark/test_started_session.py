"""The settings of a SparkSession that `connect` starts; nothing is started here."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from ikebana.spark import spark_session
from ikebana.spark.java import find_java

Memory = namedtuple("Memory", "total")


@pytest.mark.parametrize(("machine_gib", "java_mib"), [(2, 1024), (8, 1024), (24, 3072), (64, 8192)])
def test_a_session_is_as_large_as_its_machine(machine_gib: int, java_mib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(machine_gib << 30))
    settings = spark_session._settings(find_java(), 6)
    assert settings["spark.master"] == "local[6]"
    assert settings["spark.sql.shuffle.partitions"] == "6"
    assert settings["spark.driver.memory"] == f"{java_mib}m"
