"""The benchmark of durable tables verifies what comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ikebana.cli import main

SMALL = ["--commits=16", "--large=50", "--large-commits=2", "--rows=1000", "--small=5", "--workers=2"]
SMALL += ["--snapshots=1", "--replacements=3", "--views=2", "--more-rows=2000", "--more-small=70"]


@pytest.mark.usefixtures("forked_workers")
def test_durability(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    main(["bench", "durability", *SMALL, f"--folder={tmp_path}", f"--json={path}"])
    results = json.loads(path.read_text())["results"]
    assert results["load_over_recovery_ratio"] > 0
    ratios = {"threads_ratio", "stored_ratio", "load_ratio", "snapshot_ratio"}
    times = {"commit_p50_ms", "sync_p50_ms", "recovery_s", "recovery_with_views_s", "recovery_with_log_s"}
    times |= {f"more_{name}" for name in times if name.startswith("recovery")}
    assert ratios | times | {"net_changes_bytes"} <= results.keys()
