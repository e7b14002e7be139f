"""The memory benchmark reports what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ikebana.cli import main
from ikebana_bench import memory

pytestmark = pytest.mark.usefixtures("forked_workers")


def test_memory_is_reported_by_size_and_by_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(memory, "_MOST_SECONDS", 0.05)
    monkeypatch.setattr(memory, "COLUMNS", {name: memory.COLUMNS[name] for name in ("bigint", "string_of_12")})
    file = tmp_path / "out.json"
    options = ["--least=2_000", "--doublings=1", "--chunk=1_500", "--typed=1_000", "--processes=1"]
    assert main(["bench", "memory", *options, "--json", str(file)]) == 0
    results = json.loads(file.read_text())["results"]
    for phase in ("grown_2000", "grown_4000", "shrunk_2000"):
        assert f"{phase}_resident_ratio" in results
    assert round(results["bigint_first_bytes"]) == round(results["bigint_further_bytes"]) == 8
    assert results["string_of_12_further_bytes"] < results["string_of_12_first_bytes"]
