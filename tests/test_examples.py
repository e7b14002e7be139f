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
        ("late_query.py", ["From install to answer", "arrange by src  <- reused"]),
    ],
)
def test_example_runs(name: str, lines: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    command = [sys.executable, str(EXAMPLES / name)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for line in lines:
        assert line in ran.stdout
