"""The benchmark of healing verifies that nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ikebana.cli import main


@pytest.mark.usefixtures("forked_workers")
def test_healing(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    main(["bench", "healing", "--rows=1000", "--views=2", "--deaths=1", f"--folder={tmp_path}", f"--json={path}"])
    results = json.loads(path.read_text())["results"]
    assert 0 < results["start_s"] < results["answer_median_s"] <= results["views_median_s"]
