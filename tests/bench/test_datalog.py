"""The Datalog benchmarks: the graphs and sizes that they verify against, and what they report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ikebana.cli import main
from ikebana_bench import datalog
from ikebana_bench.graphs import closed, same_generation


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "report.json"
    assert main(["bench", *arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text())["results"]


@pytest.mark.parametrize(("name", "edges"), [("grid-7", datalog.grid(7)), ("tree-5", datalog.tree(5, 1))])
def test_oracle_sizes_of_relations(name: str, edges: datalog.Edges) -> None:
    assert datalog.pairs("tc", name, edges) == closed(edges)
    assert datalog.pairs("sg", name, edges) == same_generation(edges)


def test_graphs_have_the_sizes_of_the_reference() -> None:
    sizes = {"tree-11": 72_819, "tree-8": 2_125, "grid-50": 5_100, "gnp-1k": 10_000}
    assert {name: len(datalog.GRAPHS[name]()) for name in sizes} == sizes
    drawn = datalog.GRAPHS["gnp-1k"]()
    assert len(np.unique(drawn, axis=0)) == 10_000 and (drawn[:, 0] != drawn[:, 1]).all()


def test_bottom_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datalog, "GRAPHS", {"grid-5": lambda: datalog.grid(5)})
    monkeypatch.setattr(datalog, "CASES", (("tc", "grid-5"), ("sg", "grid-5")))
    results = report(tmp_path, "datalog", "--no-peers")
    assert results["tc_grid-5_pairs"] == 21**2 - 36
    assert {"tc_grid-5_s", "tc_grid-5_first_s", "sg_grid-5_cpu_s", "sort_1m_floor_ms"} <= results.keys()


def test_top_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datalog, "GRAPHS", {"grid-50": lambda: datalog.grid(6)})
    results = report(tmp_path, "datalog-interactive", "--graph=grid-50", "--arguments=3", "--no-full")
    for name in ("tc_bf", "tc_fb", "sg_bf"):
        assert {f"{name}_open_p50_ms", f"{name}_rows_max_ms", f"{name}_close_p50_ms"} <= results.keys()
