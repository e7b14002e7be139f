"""The benchmark of tables that are larger than memory reports what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ikebana.cli import main
from ikebana.runtime.program import FUSE
from tests.spilling import IN_MEMORY

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.mark.skipif(FUSE != "small", reason="visits need more memory than the limit")
def test_spilled_tables_are_compared_with_those_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    options = ["--rows=120_000", "--text=300", "--chunk=8_000", "--memory=20", "--spill=1", "--lookups=20"]
    options += ["--updates=20", f"--directory={IN_MEMORY or tmp_path}", "--json", str(file)]
    assert main(["bench", "beyond-memory", *options]) == 0
    results = json.loads(file.read_text())["results"]
    assert results["refused_rows"] < 120_000 and results["unlimited_mapped_bytes"] == 0
    assert results["spilled_mapped_bytes"] > 0.8 * results["spilled_held_bytes"]
    assert results["held_over_limit_ratio"] > 1.5
    for setting in ("unlimited", "spilled"):
        for metric in ("load_rows_per_s", "update_p50_ms", "lookup_p50_ms", "install_ms", "anonymous_bytes"):
            assert results[f"{setting}_{metric}"] > 0
    assert results["spilled_cold_lookup_p50_ms"] > 0
