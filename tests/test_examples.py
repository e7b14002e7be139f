"""The examples run, and show what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("reachability.py", ["Reachable from node 0", "equal to the answer from scratch: yes"]),
        (
            "datalog.py",
            ["bob is banned: + nothing  - bob designs", "what ann may read: ann designs", "!banned(p) fails"],
        ),
        (
            "live_graph.py",
            ["reach of 3: closed", "path from 38 to 914:", "equal to the answer from scratch: yes"],
        ),
        ("late_query.py", ["From install to answer", "arrange by src  <- shared with first query"]),
    ],
)
def test_example_runs(name: str, lines: list[str], tmp_path: Path) -> None:
    output = run(tmp_path, name)
    for line in lines:
        assert line in output


@pytest.mark.spark
def test_the_demo_runs(tmp_path: Path) -> None:
    output = run(tmp_path, "orders.py", "--seconds", "1", "--orders", "5000")
    assert "The revenue is the same as Spark's answer from scratch: yes" in output
    assert "Live answers" in output and "changes; a transaction was in all answers after" in output
    assert "A question that joins late" in output
    assert "cannot cast 'ten'" in output and "all other views are live: True" in output
    assert "best_customers" in output.partition("Memory, by table and view")[2]


@pytest.mark.spark
@pytest.mark.thorough
def test_sql_runs(tmp_path: Path) -> None:
    output = run(tmp_path, "sql.py")
    assert "arrange by id  <- reused from table customers" in output
    assert "arrange by customer  <- shared with revenue, dearest" in output
    assert "a hundred more customers" in output and "seconds later, without any change of the table" in output


def run(directory: Path, name: str, *options: str) -> str:
    """The output of an example; there are no warnings beside it, not even of Java."""
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    command = [sys.executable, str(EXAMPLES / name), *options]
    ran = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert all(line.startswith("Picked up JAVA_TOOL_OPTIONS") for line in ran.stderr.splitlines()), ran.stderr
    return ran.stdout
