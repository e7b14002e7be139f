"""What processes import: each one only what it needs, since they start often."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import ikebana
import ikebana.spark
from ikebana.cluster import worker_process
from ikebana.engine import Engine
from ikebana.sql import lower
from ikebana_bench.tpch.schemas import QUERIES
from tests.sql import tpch
from tests.sql.statements import planned


def modules_after(statements: str) -> set[str]:
    """The modules that a new process has imported after these statements."""
    command = [sys.executable, "-c", f"{statements}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    ("statements", "unwanted"),
    [
        ("import ikebana", {"numpy", "pyarrow", "pyspark"}),
        (
            "import ikebana.cluster.worker_process",
            {"pandas", "numba", "pyspark", "ikebana.sql", "ikebana.engine.engine"},
        ),
        ("import ikebana.spark.loading", {"pandas", "numba", "ikebana.sql", "ikebana.engine.engine"}),
        ("import ikebana.spark.readers", {"pandas", "numba", "ikebana.sql"}),
        ("import ikebana.spark.writers", {"pandas", "numba", "ikebana.sql", "ikebana.engine.engine"}),
    ],
    ids=["package", "worker", "task that loads", "task that reads", "task that writes"],
)
def test_processes_import_only_what_they_need(statements: str, unwanted: set[str]) -> None:
    assert not modules_after(statements) & unwanted


@pytest.mark.parametrize("package", [ikebana, ikebana.spark], ids=lambda package: package.__name__)
def test_all_public_names_are_there(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert set(names) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_arrow_recognises_pandas_once_it_is_used() -> None:
    statements = """
import sys
from ikebana.pandas_import import postpone_pandas, use_pandas
postpone_pandas()
import pyarrow as pa
assert pa.array([1, None]).null_count == 1 and "pandas" not in sys.modules
use_pandas()
import pandas
assert pa.array(pandas.Series([1.0, float("nan")])).null_count == 1
"""
    assert "pandas" in modules_after(statements)


def test_idle_workers_import_what_plans_mention(tmp_path: Path) -> None:
    with Engine() as engine:
        tables = tpch.tables(engine)
        plans = [lower(planned(f"tpch/q{number}"), tables).rows.node for number in QUERIES]
    path = tmp_path / "plans"
    path.write_bytes(pickle.dumps(plans))
    statements = f"""
import pickle, sys
import ikebana.cluster.worker_process
{"".join(f"import {module}; " for module in worker_process.USED_BY_PLANS)}
imported = set(sys.modules)
pickle.load(open({str(path)!r}, "rb"))
later = [name for name in sys.modules if name.startswith("ikebana") and name not in imported]
assert not later, later
"""
    assert modules_after(statements) >= {"ikebana.plan.ir", *worker_process.USED_BY_PLANS}
