"""The benchmark of triangles verifies its counts, and RMAT graphs are what they are said to be."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ikebana.cli import main
from ikebana_bench import triangles
from ikebana_bench.progress import Progress
from ikebana_bench.rmat import rmat, simple
from ikebana_bench.scenario import VerificationError

SMALL = ["bench", "graph-triangles", "--scale=6", "--edge-factor=8", "--changes=6"]


@pytest.mark.parametrize("workers", [1, 2])
def test_triangles(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    main([*SMALL, f"--workers={workers}", f"--json={path}"])
    results = json.loads(path.read_text())["results"]
    assert results["triangles"] > 100
    assert {"count_s", "list_s", "numba_s", "count_numba_ratio", "list_change_p50_ms"} <= results.keys()


def test_a_wrong_count_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangles, "TRIANGLE", "(a)-[]->(b); (b)-[]->(c)")
    parameters = triangles.TriangleParameters(scale=6, changes=2)
    with Progress(Console(file=io.StringIO())) as progress, pytest.raises(VerificationError):
        triangles.GraphTriangles().run(parameters, progress)


def test_rmat_graphs_are_skewed_and_reproducible() -> None:
    src, dst = rmat(10, 16, 3)
    again = rmat(10, 16, 3)
    assert len(src) == len(dst) == 16 << 10
    assert (src == again[0]).all() and (dst == again[1]).all()
    assert (src != rmat(10, 16, 4)[0]).any()
    assert np.bincount(src).max() > 10 * 16
    lesser, greater = simple(src, dst)
    assert (lesser < greater).all()
    assert len(np.unique(lesser.astype(np.int64) << 32 | greater)) == len(lesser)
