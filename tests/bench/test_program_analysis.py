"""The benchmarks of program analysis run, verify their results, and notice wrong ones."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ikebana.analysis import programs
from ikebana_bench import program_graphs as graphs
from ikebana_bench.program_analysis import (
    AnalysisParameters,
    ProgramAnalysis,
    ProgramAnalysisInteractive,
    RemovalParameters,
)
from ikebana_bench.progress import Progress
from tests.analysis import naive


@pytest.fixture
def silent() -> Iterator[Progress]:
    with Progress(Console(file=io.StringIO())) as progress:
        yield progress


def test_all_analyses_of_a_small_graph(silent: Progress) -> None:
    scenario = ProgramAnalysis()
    results = scenario.run(AnalysisParameters(size="small", peers=False), silent)
    assert results["points_to_value_flow_facts"] == results["points_to_optimised_value_flow_facts"] > 1_800
    assert results["dataflow_s"] > 0 and scenario.verifications > 6


def test_analyses_of_source(tmp_path: Path, silent: Progress) -> None:
    (tmp_path / "a.c").write_text("int f(int *p, int **q) { p = 0; *q = p; p = *q; return *p; }")
    results = ProgramAnalysis().run(AnalysisParameters(source=str(tmp_path), peers=False), silent)
    assert results["dataflow_reaches_facts"] == 2 and results["points_to_memory_alias_facts"] == 4
    results = ProgramAnalysisInteractive().run(RemovalParameters(source=str(tmp_path)), silent)
    assert results["removal_max_ms"] > 0


def test_removing_nulls(silent: Progress) -> None:
    scenario = ProgramAnalysisInteractive()
    results = scenario.run(RemovalParameters(size="small", nulls=5), silent)
    assert results["removal_p50_ms"] > 0 and scenario.verifications == 2


@pytest.mark.parametrize("seed", range(5))
def test_oracle_answers_without_ikebana(seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = (np.unique(random.integers(0, 8, (8, 2)), axis=0).astype(np.int32) for _ in range(2))
    rows = [set(map(tuple, edges.tolist())) for edges in (first, second)]
    points = naive.evaluate(programs.POINTS_TO, {"assign": rows[0], "dereference": rows[1]})
    flow, alias = graphs.aliases(first, second)
    assert {tuple(pair) for pair in graphs.unpack(flow).tolist()} == points["value_flow"]
    assert {tuple(pair) for pair in graphs.unpack(alias).tolist()} == points["memory_alias"]
    assert graphs.lacking(first, second, flow, alias) == 0
    assert graphs.lacking(first, second, flow[1:], alias) > 0
    reached = naive.evaluate(programs.DATAFLOW, {"assign": rows[0], "null": rows[1]})["reaches"]
    assert {tuple(pair) for pair in graphs.unpack(graphs.reached(first, second)).tolist()} == reached
