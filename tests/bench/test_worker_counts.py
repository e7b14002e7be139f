"""What each of several workers does, in counts: with more workers each has less, and a small change concerns few."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ikebana.cli import main
from ikebana.runtime.program import FUSE
from ikebana_bench.worker_counts import WORKERS

SEVERAL = [workers for workers in WORKERS if workers > 1]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("counts") / "report.json"
    assert main(["bench", "worker-counts", "--rows=4000", "--views=6", "--side=8", "--json", str(path)]) == 0
    results: dict[str, Any] = json.loads(path.read_text())["results"]
    return results


def test_one_worker_sends_nothing(results: dict[str, Any]) -> None:
    assert not any(value for name, value in results.items() if name.startswith("workers_1_") and "rows" not in name)


@pytest.mark.skipif(FUSE != "small", reason="the messages of programs are counted")
@pytest.mark.parametrize("workers", SEVERAL)
def test_a_small_change_is_a_few_messages_to_each_peer(results: dict[str, Any], workers: int) -> None:
    peers = workers - 1
    assert results[f"workers_{workers}_change_messages"] <= 6 * peers
    assert results[f"workers_{workers}_round_messages"] <= 6 * peers


@pytest.mark.parametrize("workload", ["load", "loop"])
def test_rows_of_a_worker_fall_with_the_number_of_workers(results: dict[str, Any], workload: str) -> None:
    alone = results[f"workers_1_{workload}_rows"]
    for workers in SEVERAL:
        assert results[f"workers_{workers}_{workload}_rows"] <= 1.5 * alone / workers


def test_a_worker_sends_less_to_more_peers(results: dict[str, Any]) -> None:
    """A worker has fewer rows to send, although more of them are for others."""
    sent = [results[f"workers_{workers}_load_sent_bytes"] for workers in SEVERAL]
    assert sent == sorted(sent, reverse=True)


def test_the_rounds_of_a_loop_cost_every_peer_the_same_messages(results: dict[str, Any]) -> None:
    for_each_peer = {results[f"workers_{workers}_loop_messages"] / (workers - 1) for workers in SEVERAL}
    assert max(for_each_peer) <= 1.2 * min(for_each_peer)
