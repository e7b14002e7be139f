"""`arrange-closed-loop`, `arrange-inserts` and `arrange-bulk`: how fast updates become a shared index (figure 6d, 6e).

Measured is the time from columns in memory until the batch is sealed and part of the trace. Not measured: generating
the keys, verifying the result, and drawing progress bars. The operator runs by itself in this process, without an
engine and without other workers.

Every `_ratio` is our speed over that of a reference; above 1, we are faster:

| metric | reference |
|---|---|
| `numpy_sort_ratio` | `numpy.sort` of the same keys, in pieces of the same size, in the same run |
| `sort_floor_ratio` | the same with NumPy's fastest sorting code for this CPU |
| `rust_anchor_ratio` | differential dataflow in Rust with one worker and the default parameters: a constant |

The two sorts differ on CPUs for which NumPy chooses slow code (see `measure.fastest_sort`); there, use
`sort_floor_ratio`. **The Rust constants were measured on a different machine of the same size** (2 Xeon cores at 2.8
GHz, 48 MiB L3, 24 GiB). On another CPU, or with other parameters, `rust_anchor_ratio` is only a rough indication. Even
on one machine, such measurements vary by 20-40% from day to day.

`cpu_share` is the fraction of the measured time in which this process was running on a core. If it is well below 1,
other programs were using the cores, and the results are not reliable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time, thread_time
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

# Measurements of the Rust reference with one worker. Comments give the measured range; the constant is near its middle.
RUST_PER_S = {
    "formation": 8.0e6,  # 7.2-9.1M updates/s: batches of 10,000 updates over 10M keys
    "arrange": 2.2e6,  # the same with a trace, over a window of 10M records
    "pairs": 10e6 / 4.25,  # 10M random (u64, u64) at one epoch: 4.0-4.5 s
    "keys": 10e6 / 2.35,  # 10M random u64: 2.3-2.4 s
    "edges": 10e6 / 2.8,  # index-forward of 10M random edges over 1M nodes: 2.8 s
}

WARM_UP = 20
"""Number of batches that are formed before the measurement starts."""

KEYS = Schema(key={"key": pa.uint64()})
PAIRS = Schema(key={"key": pa.uint64()}, val={"val": pa.uint64()})
GRAPH = Schema(key={"src": pa.int64()}, val={"dst": pa.int64()})


# Closed loop.


@dataclass(frozen=True)
class ClosedLoopParameters(Parameters):
    records: int = parameter(10_000_000, "records in the window", minimum=1)
    keys: int = parameter(10_000_000, "distinct 64-bit keys to draw records from", minimum=1)
    batches: int = parameter(1_000, "batches of updates after the load, one per epoch", minimum=1)
    batch: int = parameter(10_000, "updates in a batch, half of them insertions and half removals", minimum=2)
    effort: str = parameter("all", "merge effort", choices=("all", *EFFORT))
    seed: int = parameter(0, "seed of the random keys", minimum=0)

    @property
    def half(self) -> int:
        """Number of insertions in a batch, and of removals. If `batch` is odd, a batch has one update less."""
        return self.batch // 2

    @property
    def updates(self) -> int:
        """Total number of updates after the load."""
        return 2 * self.half * self.batches


@dataclass(frozen=True)
class Window:
    """A window that slides over records in order of arrival, with all its batches prepared."""

    load: Keys  # the initial contents
    batches: Keys  # one row per batch
    diffs: NDArray[np.int64]  # the diffs of a batch, equal for all batches
    final: Keys  # the final contents

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
    """One arranged batch, and the time that it took."""

    keys: Keys
    batch: Batch
    seconds: float
    cpu_seconds: float


class ArrangeClosedLoop(Scenario[ClosedLoopParameters]):
    """Arrange one batch after the other; the next batch starts as soon as the previous one is done.

    `formation` is measured with an arrange operator whose handle was dropped, so that it maintains no trace.
    `maintenance` is the additional time of an arrange operator with a trace. It is not reported if the run is too
    short for the difference to be positive. The reader's handle advances with every epoch.
    """

    name = "arrange-closed-loop"
    claim = (
        "The index of a sliding window absorbs millions of updates per second; the merge effort trades short steps "
        "for few batches."
    )
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
        """Return the seconds to seal the batches without a trace; the merge effort has no influence."""
        arrange = Arrange(KEYS)
        arrange.handle().drop()
        seconds = 0.0
        for step in _steps(arrange, window, batches):
            seconds += step.seconds
        self._verify_batch(step, window)
        return seconds

    def _arrange(self, effort: str, window: Window, progress: Progress) -> tuple[float, Results]:
        """Return the seconds for all batches, and the metrics of the trace."""
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
        """Verify that the last batch contains its updates, sorted and consolidated."""
        formed = last.batch.gather(np.arange(len(last.batch))).to_table()
        keys, position = np.unique(last.keys, return_inverse=True)
        diffs = np.bincount(position, window.diffs)
        self.verify(
            np.array_equal(formed["key"].to_numpy(), keys[diffs != 0])
            and np.array_equal(formed["diff"].to_numpy(), diffs[diffs != 0]),
            "a batch contains its updates, sorted and consolidated",
        )

    def _verify_window(self, effort: str, arrange: Arrange, handle: Handle, window: Window) -> None:
        """Verify that the final contents of the trace are the records in the window."""
        now = len(window.batches) + 1
        arrange.advance((now + 1,))
        table = handle.read((now,))
        actual, diffs = table["key"].to_numpy(), table["diff"].to_numpy()
        order = np.argsort(actual)
        keys, counts = np.unique(window.final, return_counts=True)
        self.verify(
            np.array_equal(actual[order], keys) and np.array_equal(diffs[order], counts),
            f"with effort {effort}, the trace contains the window",
            detail=f"the trace has {len(actual)} keys and {diffs.sum()} records,"
            f" the window has {len(keys)} keys and {len(window.final)} records",
        )


def _steps(arrange: Arrange, window: Window, batches: Iterable[Keys], handle: Handle | None = None) -> Iterator[Step]:
    """Arrange the batches, and time each one from its columns until the reader has advanced past its epoch."""
    for epoch, keys in enumerate(batches, start=1):
        cpu, watch = process_time(), Stopwatch()
        arrange.update({"key": keys}, (epoch,), window.diffs)
        batch = arrange.advance((epoch + 1,))
        if handle is not None:
            handle.advance(Antichain.of((epoch + 1,)))
        yield Step(keys, batch, watch.seconds, process_time() - cpu)


# Insertions.


@dataclass(frozen=True)
class InsertsParameters(Parameters):
    records: int = parameter(3_000_000, "rows in the index before the first insertion", minimum=1)
    batches: int = parameter(400, "insertions, one per epoch", minimum=1)
    batch: int = parameter(10_000, "rows of an insertion", minimum=1)
    effort: str = parameter("default", "merge effort", choices=tuple(EFFORT))
    seed: int = parameter(0, "seed of the random rows", minimum=0)


class ArrangeInserts(Scenario[InsertsParameters]):
    """Insert equal numbers of rows into a large index, which only grows.

    `step` is the time from columns in memory until the reader has advanced, `cpu` the processor time of this thread in
    it, and `moved` the rows that merges moved, which do not depend on the machine.
    """

    name = "arrange-inserts"
    claim = (
        "Insertions into a large index take about equally long: in processor time, the 99th percentile is at most 3 "
        "times the median."
    )
    paper = "section 4.2 (amortised merging); figure 6e"
    parameters = InsertsParameters

    def run(self, parameters: InsertsParameters, progress: Progress) -> Results:
        p = parameters
        keys = random_keys(p.records + p.batches * p.batch, p.seed).view(np.uint64)
        vals = np.arange(len(keys), dtype=np.uint64)
        arrange = Arrange(PAIRS, effort=p.effort)
        handle = arrange.handle()
        arrange.update({"key": keys[: p.records], "val": vals[: p.records]}, (0,))
        arrange.advance((1,))
        milliseconds, cpu, moved, batches = [], [], [], []
        for epoch in progress.track("insertions", range(1, p.batches + 1)):
            rows = slice(p.records + (epoch - 1) * p.batch, p.records + epoch * p.batch)
            before, started, watch = handle.rows_moved, thread_time(), Stopwatch()
            arrange.update({"key": keys[rows], "val": vals[rows]}, (epoch,))
            arrange.advance((epoch + 1,))
            handle.advance((epoch,))
            milliseconds.append(1e3 * watch.seconds)
            cpu.append(1e3 * (thread_time() - started))
            moved.append(handle.rows_moved - before)
            batches.append(len(handle.batches()))
        self._verify(handle.read((p.batches,)), keys, vals)
        results = percentiles("step", "ms", milliseconds) | percentiles("cpu", "ms", cpu)
        results |= {f"moved_{at}_rows": np.quantile(moved, q, method="higher").item() for at, q in _QUANTILES.items()}
        ratios = {"step_p99_over_p50_ratio": results["step_p99_ms"] / results["step_p50_ms"]}
        ratios["cpu_p99_over_p50_ratio"] = results["cpu_p99_ms"] / results["cpu_p50_ms"]
        ratios["moved_p99_over_p50_ratio"] = results["moved_p99_rows"] / max(1, results["moved_p50_rows"])
        batch_counts = {"batches_mean": sum(batches) / len(batches), "batches_max": max(batches)}
        return {**results, **ratios, **batch_counts, "step_ms": ccdf(milliseconds)}

    def _verify(self, stored: pa.Table, keys: Keys, vals: Keys) -> None:
        """Verify that the index contains exactly the rows that were inserted; their values are distinct."""
        order = np.argsort(stored["val"].to_numpy())
        self.verify(
            np.array_equal(stored["val"].to_numpy()[order], vals)
            and np.array_equal(stored["key"].to_numpy()[order], keys)
            and bool((stored["diff"].to_numpy() == 1).all()),
            "the index contains the rows that were inserted",
            detail=f"the index has {stored.num_rows} rows, and {len(keys)} were inserted",
        )


_QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


# Bulk.


@dataclass(frozen=True)
class BulkParameters(Parameters):
    rows: int = parameter(10_000_000, "updates at one epoch", minimum=1)
    nodes: int = parameter(1_000_000, "nodes of the random graph, which has as many edges as rows", minimum=1)
    repeats: int = parameter(3, "number of runs; the fastest counts", minimum=1)
    lookups: int = parameter(1_000, "keys to look up in the result, half of them present", minimum=2)
    seed: int = parameter(0, "seed of the random rows", minimum=0)


class ArrangeBulk(Scenario[BulkParameters]):
    """Turn unsorted columns into one sealed, indexed batch.

    `pairs` are random 64-bit keys and values, and `keys` are the same keys without values. `edges` are the edges of a
    random graph, indexed by source; they are drawn independently, so some edges occur twice.
    """

    name = "arrange-bulk"
    claim = "Ten million unsorted updates at one epoch are indexed within seconds, using few bytes per update."
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
        """Verify that the trace contains the same rows in sorted order, with their multiplicities."""
        order = np.lexsort(tuple(reversed(columns.values())))
        stored = handle.updates().to_table()
        times = stored["diff"].to_numpy()
        self.verify((times > 0).all(), f"{name}: every diff in the index is positive")
        for column, values in columns.items():
            stored_values = np.repeat(stored[column].to_numpy(), times)
            what = f'{name}: column "{column}" of the index agrees with numpy.lexsort'
            self.verify(np.array_equal(stored_values, values[order]), what)

    def _verify_lookups(self, name: str, handle: Handle, columns: Columns, parameters: BulkParameters) -> None:
        """Verify that lookups return exactly the rows of present keys, and no rows of absent keys."""
        key = next(iter(columns))
        keys, half = columns[key], parameters.lookups // 2
        present = np.random.default_rng(parameters.seed + 3).choice(keys, half)
        absent = random_keys(parameters.lookups - half, parameters.seed + 4).astype(keys.dtype)
        lookups = np.concatenate([present, absent])
        table = handle.lookup({key: lookups}, (1,))
        actual = {column: table[column].to_numpy() for column in columns}
        actual_order = np.lexsort(tuple(reversed(actual.values())))
        rows = np.flatnonzero(np.isin(keys, lookups))
        order = rows[np.lexsort(tuple(column[rows] for column in reversed(columns.values())))]
        times = table["diff"].to_numpy()[actual_order]
        for column, values in columns.items():
            actual_values = np.repeat(actual[column][actual_order], times)
            self.verify(np.array_equal(actual_values, values[order]), f'{name}: lookups return the correct "{column}"')
