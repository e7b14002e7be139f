"""`arrange-closed-loop` and `arrange-bulk`: how fast updates become a shared index (figure 6d, 6e).

Every `_ratio` here compares speeds, ours over the other's: above 1 we are faster.

| metric | the other |
|---|---|
| `numpy_sort_ratio` | `numpy.sort` as it comes: the same keys in pieces of the same size, in the same run |
| `sort_floor_ratio` | the same with the fastest code that NumPy has for this CPU, the floor under arranging |
| `rust_anchor_ratio` | differential-dataflow in Rust, one worker, at the default parameters: a constant |

The two sorts differ on CPUs for which NumPy picks badly, see `measure.fastest_sort`: being faster than
`numpy.sort` there says little. **The anchors were measured on another machine of this size** (2 Xeon cores at
2.8 GHz, 48 MiB L3, 24 GiB). On another CPU or at other parameters that ratio is a rough orientation at best,
and even on one machine such figures move by 20-40% from day to day.

What is timed is what a program would wait for: from columns in memory until the batch is sealed and in the
trace. Making the keys, checking the result and drawing progress are outside. `cpu_share` is how much of that
time this process had a core: well below 1, others were using it, and the figures are theirs as much as ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.encoding import Schema
from ikebana.operators import Arrange
from ikebana.time import Antichain
from ikebana.trace import EFFORT, Batch, Handle
from ikebana_bench.measure import Series, Stopwatch, ccdf, fastest_sort, numpy_sort_floor, percentiles, random_keys
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

Keys: TypeAlias = NDArray[np.uint64]
Columns: TypeAlias = dict[str, NDArray[Any]]

# The Rust reference, one worker. Ranges as measured; the constant is near the middle.
RUST_PER_S = {
    "formation": 8.0e6,  # 7.2-9.1M updates/s: batches of 10,000 out of 10M keys
    "arrange": 2.2e6,  # the same with its trace, over a window of 10M records
    "pairs": 10e6 / 4.25,  # 10M random (u64, u64) at one epoch: 4.0-4.5 s
    "keys": 10e6 / 2.35,  # 10M random u64: 2.3-2.4 s
    "edges": 10e6 / 2.8,  # index-forward of 10M random edges over 1M nodes: 2.8 s
}

WARM_UP = 20
"""Batches formed before anything is timed."""

KEYS = Schema(key={"key": pa.uint64()})
PAIRS = Schema(key={"key": pa.uint64()}, val={"val": pa.uint64()})
GRAPH = Schema(key={"src": pa.int64()}, val={"dst": pa.int64()})


# Closed loop.


@dataclass(frozen=True)
class ClosedLoopParameters(Parameters):
    records: int = parameter(10_000_000, "records in the window", minimum=1)
    keys: int = parameter(10_000_000, "distinct 64-bit keys to draw records from", minimum=1)
    batches: int = parameter(1_000, "batches of updates, an epoch each, after the load", minimum=1)
    batch: int = parameter(10_000, "updates in a batch: half of them insert, half remove", minimum=2)
    effort: str = parameter("all", "how eagerly to merge", choices=("all", *EFFORT))
    seed: int = parameter(0, "seed of the random keys", minimum=0)

    @property
    def half(self) -> int:
        """The insertions of a batch, and its removals; an odd `batch` has one update less."""
        return self.batch // 2

    @property
    def updates(self) -> int:
        """All updates after the load."""
        return 2 * self.half * self.batches


@dataclass(frozen=True)
class Window:
    """A window that slides over records in the order of their arrival, prepared batch by batch."""

    load: Keys  # what is in it at first
    batches: Keys  # a row for each batch
    diffs: NDArray[np.int64]  # of every batch
    final: Keys  # what is in it in the end

    @staticmethod
    def of(p: ClosedLoopParameters) -> Window:
        universe = random_keys(p.keys, p.seed).view(np.uint64)
        choice = np.random.default_rng(p.seed + 1).integers(0, p.keys, p.records + p.half * p.batches)
        records = universe[choice]
        inserted = records[p.records :].reshape(p.batches, p.half)
        removed = records[: p.half * p.batches].reshape(p.batches, p.half)
        batches = np.concatenate([inserted, removed], axis=1)
        diffs = np.repeat(np.array([1, -1]), p.half)
        return Window(records[: p.records], batches, diffs, records[p.half * p.batches :])


@dataclass(frozen=True)
class Step:
    """One batch that has gone in."""

    keys: Keys
    batch: Batch
    seconds: float
    cpu_seconds: float


class ArrangeClosedLoop(Scenario[ClosedLoopParameters]):
    """Steps of one batch each, the next one as soon as the last is done.

    Batch formation is an arrange whose handle was dropped, so that it keeps no trace. Trace maintenance is
    what an arrange with a trace takes longer than that; where a run is too short for the difference to be
    positive, it is not reported. The reader's handle moves on with every epoch.
    """

    name = "arrange-closed-loop"
    claim = "A window's index takes millions of updates a second; effort trades short steps for few batches."
    paper = "figure 6d, 6e"
    parameters = ClosedLoopParameters

    def run(self, parameters: ClosedLoopParameters, progress: Progress) -> Results:
        window, updates = Window.of(parameters), parameters.updates
        sort = sum(numpy_sort_floor(keys, 1) for keys in progress.track("numpy.sort", window.batches))
        floor = min(sort, fastest_sort(window.batches))
        self._form(window, window.batches[:WARM_UP])
        results: dict[str, float | Series] = {
            "numpy_sort_keys_per_s": updates / sort,
            "sort_floor_keys_per_s": updates / floor,
        }
        for effort in EFFORT if parameters.effort == "all" else [parameters.effort]:
            formation = self._form(window, progress.track(f"{effort}: formation", window.batches))
            arrange, about_trace = self._arrange(effort, window, progress)
            measured: dict[str, float | Series] = {}
            for part, seconds in (("formation", formation), ("arrange", arrange)):
                measured[f"{part}_updates_per_s"] = updates / seconds
                measured[f"{part}_numpy_sort_ratio"] = sort / seconds
                measured[f"{part}_sort_floor_ratio"] = floor / seconds
                measured[f"{part}_rust_anchor_ratio"] = updates / seconds / RUST_PER_S[part]
            if arrange > formation:
                measured["maintenance_updates_per_s"] = updates / (arrange - formation)
            measured |= about_trace
            results |= {f"{effort}_{metric}": value for metric, value in measured.items()}
        return results

    def _form(self, window: Window, batches: Iterable[Keys]) -> float:
        """Seconds to seal the batches and keep none; the merge effort does not matter."""
        arrange = Arrange(KEYS)
        arrange.handle().drop()
        seconds = 0.0
        for step in _steps(arrange, window, batches):
            seconds += step.seconds
        self._verify_batch(step, window)
        return seconds

    def _arrange(self, effort: str, window: Window, progress: Progress) -> tuple[float, Results]:
        """Seconds for all batches, and what there is to say about the trace."""
        arrange = Arrange(KEYS, effort=effort)
        handle = arrange.handle()
        watch = Stopwatch()
        arrange.update({"key": window.load}, (0,))
        arrange.advance((1,))
        load, moved_by_load = watch.seconds, handle.rows_moved
        handle.advance(Antichain.of((1,)))
        milliseconds, batches, held, cpu = [], [], [], 0.0
        for step in _steps(arrange, window, progress.track(f"{effort}: arrange", window.batches), handle):
            milliseconds.append(1e3 * step.seconds)
            cpu += step.cpu_seconds
            batches.append(len(handle.batches()))
            held.append(handle.nbytes)
        rows_moved = handle.rows_moved - moved_by_load
        self._verify_window(effort, arrange, handle, window)
        return sum(milliseconds) / 1e3, {
            "load_s": load,
            "cpu_share": cpu / (sum(milliseconds) / 1e3),
            **percentiles("step", "ms", milliseconds),
            "step_ms": ccdf(milliseconds),
            "rows_moved_per_update": rows_moved / window.batches.size,
            "batches_at_end": batches[-1],
            "batches_max": max(batches),
            "held_per_record_bytes": held[-1] / len(window.final),
            "held_per_record_max_bytes": max(held) / len(window.final),
        }

    def _verify_batch(self, last: Step, window: Window) -> None:
        """The last batch formed has its updates, in order and added up."""
        formed = last.batch.gather(np.arange(len(last.batch))).to_table()
        keys, position = np.unique(last.keys, return_inverse=True)
        diffs = np.bincount(position, window.diffs)
        self.verify(
            np.array_equal(formed["key"].to_numpy(), keys[diffs != 0])
            and np.array_equal(formed["diff"].to_numpy(), diffs[diffs != 0]),
            "a batch holds its updates, sorted and added up",
        )

    def _verify_window(self, effort: str, arrange: Arrange, handle: Handle, window: Window) -> None:
        """At the end, the trace adds up to the records in the window."""
        now = len(window.batches) + 1
        arrange.advance((now + 1,))
        table = handle.read((now,))
        actual, diffs = table["key"].to_numpy(), table["diff"].to_numpy()
        order = np.argsort(actual)
        keys, counts = np.unique(window.final, return_counts=True)
        self.verify(
            np.array_equal(actual[order], keys) and np.array_equal(diffs[order], counts),
            f"with effort {effort} the trace holds the window",
            detail=f"it has {len(actual)} keys and {diffs.sum()} records,"
            f" the window {len(keys)} and {len(window.final)}",
        )


def _steps(arrange: Arrange, window: Window, batches: Iterable[Keys], handle: Handle | None = None) -> Iterator[Step]:
    """Arrange the batches; timed is each one from its columns until the reader has moved past its epoch."""
    for epoch, keys in enumerate(batches, start=1):
        cpu, watch = process_time(), Stopwatch()
        arrange.update({"key": keys}, (epoch,), window.diffs)
        batch = arrange.advance((epoch + 1,))
        if handle is not None:
            handle.advance(Antichain.of((epoch + 1,)))
        yield Step(keys, batch, watch.seconds, process_time() - cpu)


# Bulk.


@dataclass(frozen=True)
class BulkParameters(Parameters):
    rows: int = parameter(10_000_000, "updates at one epoch", minimum=1)
    nodes: int = parameter(1_000_000, "nodes of the random graph; it has as many edges as rows", minimum=1)
    repeats: int = parameter(3, "how often to arrange them; the best counts", minimum=1)
    lookups: int = parameter(1_000, "keys to look up in the result, half of them present", minimum=2)
    seed: int = parameter(0, "seed of the random rows", minimum=0)


class ArrangeBulk(Scenario[BulkParameters]):
    """Unsorted columns become one sealed, indexed batch.

    `pairs` are random 64-bit keys and values, `keys` the same keys alone. `edges` are a random graph by
    source; some edges occur twice, as they do when they are drawn independently.
    """

    name = "arrange-bulk"
    claim = "Ten million unsorted updates at one epoch are an index within seconds, in few bytes each."
    paper = "figure 6 (the load); section 6.3.3 (index-forward)"
    parameters = BulkParameters

    def run(self, parameters: BulkParameters, progress: Progress) -> Results:
        rows, seed = parameters.rows, parameters.seed
        key, val = (random_keys(rows, seed + n).view(np.uint64) for n in range(2))
        src, dst = np.random.default_rng(seed + 2).integers(0, parameters.nodes, (2, rows))
        variants: Sequence[tuple[str, Schema, Columns]] = (
            ("pairs", PAIRS, {"key": key, "val": val}),
            ("keys", KEYS, {"key": key}),
            ("edges", GRAPH, {"src": src, "dst": dst}),
        )
        results: dict[str, float] = {}
        for name, schema, columns in variants:
            measured = self._measure(name, schema, columns, parameters, progress)
            results |= {f"{name}_{metric}": value for metric, value in measured.items()}
        return results

    def _measure(
        self,
        name: str,
        schema: Schema,
        columns: Columns,
        parameters: BulkParameters,
        progress: Progress,
    ) -> dict[str, float]:
        encode, total, cpu = [], [], []
        for _ in progress.track(name, range(parameters.repeats)):
            arrange = Arrange(schema, name=name)
            handle = arrange.handle()
            started, watch = process_time(), Stopwatch()
            arrange.update(columns, (0,))
            encode.append(watch.seconds)
            arrange.advance((1,))
            total.append(watch.seconds)
            cpu.append(process_time() - started)
        handle.advance(Antichain.of((1,)))
        arrange.advance((2,))
        self._verify_rows(name, handle, columns)
        self._verify_lookups(name, handle, columns, parameters)

        rows, best = parameters.rows, min(total)
        run = total.index(best)
        keys = next(iter(columns.values()))
        sort = numpy_sort_floor(keys)
        floor = min(sort, fastest_sort(keys[np.newaxis]))
        return {
            "best_s": best,
            **{f"run_{number}_s": seconds for number, seconds in enumerate(total, start=1)},
            "cpu_share": cpu[run] / best,
            "encode_s": encode[run],
            "seal_s": best - encode[run],
            "rows_per_s": rows / best,
            "numpy_sort_s": sort,
            "sort_floor_s": floor,
            "numpy_sort_ratio": sort / best,
            "sort_floor_ratio": floor / best,
            "rust_anchor_ratio": rows / best / RUST_PER_S[name],
            "held_per_row_bytes": handle.nbytes / rows,
        }

    def _verify_rows(self, name: str, handle: Handle, columns: Columns) -> None:
        """The trace holds the same rows, in order: as many of each as its diff says."""
        order = np.lexsort(tuple(reversed(columns.values())))
        stored = handle.updates().to_table()
        times = stored["diff"].to_numpy()
        self.verify((times > 0).all(), f"{name}: every diff in the index is positive")
        for column, given in columns.items():
            held = np.repeat(stored[column].to_numpy(), times)
            what = f'{name}: column "{column}" of the index is as numpy.lexsort has it'
            self.verify(np.array_equal(held, given[order]), what)

    def _verify_lookups(self, name: str, handle: Handle, columns: Columns, parameters: BulkParameters) -> None:
        """Looking keys up finds exactly their rows, and nothing for keys that are absent."""
        key = next(iter(columns))
        given, half = columns[key], parameters.lookups // 2
        present = np.random.default_rng(parameters.seed + 3).choice(given, half)
        absent = random_keys(parameters.lookups - half, parameters.seed + 4).astype(given.dtype)
        wanted = np.concatenate([present, absent])
        table = handle.lookup({key: wanted}, (1,))
        actual = {column: table[column].to_numpy() for column in columns}
        actual_order = np.lexsort(tuple(reversed(actual.values())))
        rows = np.flatnonzero(np.isin(given, wanted))
        order = rows[np.lexsort(tuple(column[rows] for column in reversed(columns.values())))]
        times = table["diff"].to_numpy()[actual_order]
        for column, values in columns.items():
            held = np.repeat(actual[column][actual_order], times)
            self.verify(np.array_equal(held, values[order]), f'{name}: look-ups find the right "{column}"')
