"""The arrange benchmarks: they report what they promise, and a wrong index does not pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ikebana.cli import main
from ikebana.trace import EFFORT, Spine, batcher
from ikebana.trace.batch import StoredBatch
from ikebana.trace.updates import Sorted, Updates, consolidate_all
from ikebana_bench import arrange, measure

CLOSED_LOOP = ["arrange-closed-loop", "--records=3_000", "--keys=2_000", "--batches=40", "--batch=100"]
INSERTS = ["arrange-inserts", "--records=3_000", "--batches=40", "--batch=100"]
BULK = ["arrange-bulk", "--rows=3_000", "--nodes=200", "--repeats=2", "--lookups=100"]

TIMED = {"updates_per_s", "numpy_sort_ratio", "sort_floor_ratio", "rust_anchor_ratio"}
ABOUT_TRACE = {
    "load_s",
    "cpu_share",
    "step_p50_ms",
    "step_p99_ms",
    "step_max_ms",
    "step_ms",
    "rows_moved_per_update",
    "batches_at_end",
    "batches_max",
    "held_per_record_bytes",
    "held_per_record_max_bytes",
}
INSERT_UNITS = {"step": "ms", "cpu": "ms", "moved": "rows"}
BULK_METRICS = {
    "best_s",
    "run_1_s",
    "run_2_s",
    "cpu_share",
    "encode_s",
    "seal_s",
    "rows_per_s",
    "numpy_sort_s",
    "sort_floor_s",
    "numpy_sort_ratio",
    "sort_floor_ratio",
    "rust_anchor_ratio",
    "held_per_row_bytes",
}


def run(options: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    file = folder / "out.json"
    status = main(["bench", *options, "--json", str(file)])
    return status, json.loads(file.read_text())


@pytest.mark.parametrize("effort", ["all", *EFFORT])
def test_closed_loop_reports_every_effort_asked_for(effort: str, tmp_path: Path) -> None:
    status, document = run([*CLOSED_LOOP, "--effort", effort], tmp_path)
    assert status == 0
    assert document["verified"] is True
    metrics = {f"{part}_{metric}" for part in ("formation", "arrange") for metric in TIMED} | ABOUT_TRACE
    efforts = EFFORT if effort == "all" else [effort]
    expected = {f"{name}_{metric}" for name in efforts for metric in metrics}
    expected |= {"numpy_sort_keys_per_s", "sort_floor_keys_per_s"}
    optional = {f"{name}_maintenance_updates_per_s" for name in efforts}
    assert expected <= document["results"].keys() <= expected | optional
    for name in efforts:
        assert len(document["results"][f"{name}_step_ms"]["x"]) == 40


def test_closed_loop_draws_a_curve_for_every_effort(tmp_path: Path) -> None:
    _, document = run(CLOSED_LOOP, tmp_path)
    series = {
        name: measure.Series(tuple(value["x"]), tuple(value["y"])) if isinstance(value, dict) else value
        for name, value in document["results"].items()
    }
    (panel,) = arrange.ArrangeClosedLoop().figures(series)
    assert set(panel.curves) == {f"{effort} step" for effort in EFFORT}


def test_inserts_reports_quantiles_and_their_ratios(tmp_path: Path) -> None:
    status, document = run(INSERTS, tmp_path)
    assert status == 0
    assert document["verified"] is True
    quantiles = {f"{what}_{at}_{unit}" for what, unit in INSERT_UNITS.items() for at in ("p50", "p99", "max")}
    ratios = {f"{what}_p99_over_p50_ratio" for what in INSERT_UNITS}
    assert document["results"].keys() == quantiles | ratios | {"batches_mean", "batches_max", "step_ms"}


@pytest.mark.parametrize(("batch", "records"), [(7, 1_000), (1_000, 10), (2, 1)])
def test_closed_loop_window_may_be_odd_or_short(batch: int, records: int, tmp_path: Path) -> None:
    options = [*CLOSED_LOOP, "--batch", str(batch), "--records", str(records)]
    assert run(options, tmp_path)[1]["verified"] is True


def test_oracle_window_slides_one_batch_at_a_time() -> None:
    p = arrange.ClosedLoopParameters(records=5, keys=3, batches=4, batch=4)
    window = arrange.Window.of(p)
    held = window.load.tolist()
    for batch in window.batches:
        held += batch[window.diffs > 0].tolist()
        assert batch[window.diffs < 0].tolist() == held[: p.half]
        del held[: p.half]
    assert held == window.final.tolist()
    assert window.batches.size == p.updates


def test_bulk_reports_every_variant(tmp_path: Path) -> None:
    status, document = run(BULK, tmp_path)
    assert status == 0
    assert document["verified"] is True
    expected = {f"{name}_{metric}" for name in ("pairs", "keys", "edges") for metric in BULK_METRICS}
    assert document["results"].keys() == expected
    for name in ("pairs", "keys", "edges"):
        runs = [document["results"][f"{name}_run_{n}_s"] for n in (1, 2)]
        assert document["results"][f"{name}_best_s"] == min(runs)
    assert document["results"]["pairs_held_per_row_bytes"] == pytest.approx(16, abs=0.1)


def lose_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spine forgets the 20th batch."""
    insert = Spine.insert
    seen = []

    def forgetful(self: Spine, batch: Any) -> None:
        seen.append(batch)
        if len(seen) == 20:
            self.upper = batch.description.upper
        else:
            insert(self, batch)

    monkeypatch.setattr(Spine, "insert", forgetful)


def consolidate_wrongly(monkeypatch: pytest.MonkeyPatch, change: Callable[[Updates], Updates]) -> None:
    def wrong(parts: Sequence[Updates]) -> Sorted:
        right = consolidate_all(parts)
        if len(right.updates) < 2:
            return right
        changed = change(right.updates)
        return Sorted(changed, right.ident[: len(changed)], right.collided)

    monkeypatch.setattr(batcher, "consolidate_all", wrong)


def lose_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    consolidate_wrongly(monkeypatch, lambda updates: updates.take(np.arange(len(updates) - 1)))


def swap_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    consolidate_wrongly(monkeypatch, lambda updates: updates.take(np.r_[1, 0, np.arange(2, len(updates))]))


def miss_in_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key's last row is not found."""
    seek = StoredBatch.seek

    def short(self: StoredBatch, keys: Any) -> tuple[Any, Any]:
        starts, ends = seek(self, keys)
        return starts, np.maximum(starts, ends - 1)

    monkeypatch.setattr(StoredBatch, "seek", short)


@pytest.mark.parametrize(
    ("options", "corrupt", "message"),
    [
        (CLOSED_LOOP, lose_a_batch, "with effort eager, the trace contains the window"),
        (CLOSED_LOOP, lose_a_row, "a batch contains its updates, sorted and consolidated"),
        (CLOSED_LOOP, swap_two_rows, "a batch contains its updates, sorted and consolidated"),
        (INSERTS, lose_a_batch, "the index contains the rows that were inserted"),
        (INSERTS, lose_a_row, "the index contains the rows that were inserted"),
        (BULK, lose_a_row, 'pairs: column "key" of the index agrees with numpy.lexsort'),
        (BULK, swap_two_rows, 'pairs: column "key" of the index agrees with numpy.lexsort'),
        (BULK, miss_in_look_ups, 'pairs: lookups return the correct "key"'),
    ],
)
def test_a_wrong_index_does_not_pass(
    options: list[str],
    corrupt: Callable[[pytest.MonkeyPatch], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corrupt(monkeypatch)
    status, document = run(options, tmp_path)
    assert status == 1
    assert document["verified"] is False
    assert document["results"] == {}
    assert f"verification failed: {message}" in capsys.readouterr().err


def test_fastest_sort_is_for_pieces_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert measure.fastest_sort(measure.random_keys(1_000).reshape(10, 100), repeats=1) > 0
    assert list(tmp_path.iterdir()) == []
