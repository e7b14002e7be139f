"""`count-closed-loop`, `count-open-loop` and `scaling`: a maintained count over a sliding window (figure 6a to 6d).

The window contains random 64-bit keys, and a view counts the rows of each key. Every batch is one epoch: it inserts new
keys and removes the oldest. Measured is the time from the first push of a batch until the view is up to date; loading
the window is not measured. The times of `count-open-loop` and `scaling` include generating the keys of a batch.

- *Closed loop*: the next batch is pushed as soon as the view is up to date.
- *Open loop*: batches are due at a fixed rate, even if the view is behind; latency counts from the time a batch is due.
- *Scaling*: the closed loop with 1, 2, ... worker processes, over the same window (strong scaling) and over a window
  that grows with the number of workers (weak scaling).

The defaults are for a machine with two cores: one or two worker processes. `rust_anchor_ratio` is our speed over the
speed of the Rust reference; above 1, we are faster. `ikebana_bench.arrange` describes how reliable it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Input, View
from ikebana_bench.measure import Stopwatch, ccdf, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

Keys = NDArray[np.int64]

RUST_PER_S = {0: 0.57e6, 1: 0.57e6, 2: 0.90e6}
"""Updates per second of the Rust reference (arrange and count), by number of workers; 0 is a worker in this process."""


class Window:
    """A window that slides over a stream of random keys; `present` has its current contents."""

    def __init__(self, records: int, keys: int, seed: int) -> None:
        self._random, self._keys = np.random.default_rng(seed), keys
        self.present: Keys = self._random.integers(0, keys, records)
        self._oldest = 0

    def batch(self, size: int) -> tuple[Keys, NDArray[np.int64]]:
        """Return the keys and diffs of the next batch: half insert new keys, half remove the oldest keys."""
        half = size // 2
        new = self._random.integers(0, self._keys, half)
        at = (self._oldest + np.arange(half)) % len(self.present)
        old = self.present[at]
        self.present[at] = new
        self._oldest += half
        return np.concatenate([new, old]), np.repeat(np.array([1, -1]), half)


@contextmanager
def counting(processes: int, window: Window) -> Iterator[tuple[Engine, Input, View]]:
    """An engine with a view that counts the rows of the window and is up to date."""
    cluster = Processes(processes) if processes else None
    with Engine(cluster=cluster) as engine:
        records = engine.input("records", {"key": pa.int64()})
        counts = engine.install("counts", records.count("key"))
        for part in np.array_split(window.present, max(1, engine.cluster.size)):
            records.insert({"key": part})
        engine.advance()
        counts.wait(engine.epoch - 1)
        yield engine, records, counts


def step(engine: Engine, records: Input, counts: View, keys: Keys, diffs: NDArray[np.int64]) -> None:
    """Push one batch, in as many parts as there are workers, and wait until the view is up to date."""
    parts = engine.cluster.size
    for part_keys, part_diffs in zip(np.array_split(keys, parts), np.array_split(diffs, parts), strict=True):
        records.push({"key": part_keys}, part_diffs)
    engine.advance()
    counts.wait(engine.epoch - 1)


@dataclass(frozen=True)
class CountParameters(Parameters):
    records: int = parameter(10_000_000, "records in the window", minimum=1)
    keys: int = parameter(10_000_000, "distinct keys to draw records from", minimum=1)
    batches: int = parameter(200, "measured batches, one per epoch", minimum=1)
    batch: int = parameter(
        10_000, "updates per worker in a batch, half of them insertions and half removals", minimum=2
    )
    processes: int = parameter(1, "worker processes; 0 for a worker in this process", minimum=0)
    seed: int = parameter(0, "seed of the random keys", minimum=0)


class CountClosedLoop(Scenario[CountParameters]):
    """The next batch is pushed as soon as the view is up to date."""

    name = "count-closed-loop"
    claim = "Arranging and counting a sliding window is as fast as in the compiled reference."
    paper = "figure 6d"
    parameters = CountParameters

    def run(self, parameters: CountParameters, progress: Progress) -> Results:
        window = Window(parameters.records, parameters.keys, parameters.seed)
        size = parameters.batch * max(1, parameters.processes)
        with counting(parameters.processes, window) as (engine, records, counts):
            spent = []
            for _ in progress.track("counting", range(parameters.batches)):
                batch = window.batch(size)
                watch = Stopwatch()
                step(engine, records, counts, *batch)
                spent.append(watch.seconds * 1e3)
            check(self, counts, window)
        rate = size * len(spent) / (sum(spent) / 1e3)
        return {
            "updates_per_s": rate,
            "rust_anchor_ratio": rate / RUST_PER_S.get(parameters.processes, RUST_PER_S[2]),
            **percentiles("step", "ms", spent),
            "step_ms": ccdf(spent),
        }


def check(scenario: Scenario[Any], counts: View, window: Window) -> None:
    """Verify that the view has the counts of the window."""
    actual = counts.read()
    order = np.argsort(actual["key"].to_numpy())
    keys, expected = np.unique(window.present, return_counts=True)
    same = np.array_equal(actual["key"].to_numpy()[order], keys)
    scenario.verify(
        same and np.array_equal(actual["count"].to_numpy()[order], expected),
        "the view has the counts of the window",
    )


@dataclass(frozen=True)
class OpenLoopParameters(Parameters):
    records: int = parameter(10_000_000, "records in the window at full load", minimum=8)
    rate: int = parameter(1_000_000, "updates per second at full load", minimum=8)
    halvings: int = parameter(4, "number of times that the load and the window are halved", minimum=0)
    seconds: float = parameter(5.0, "duration of the measurement at each load, in seconds", minimum=0.1)
    period_ms: float = parameter(20.0, "milliseconds between batches", minimum=0.1)
    processes: int = parameter(1, "worker processes; 0 for a worker in this process", minimum=0)
    seed: int = parameter(0, "seed of the random keys", minimum=0)


class CountOpenLoop(Scenario[OpenLoopParameters]):
    """Batches are due at a fixed rate; the load and the window are halved from one measurement to the next."""

    name = "count-open-loop"
    claim = "The latency under a fixed load decreases with the load."
    paper = "figure 6a"
    parameters = OpenLoopParameters

    def run(self, parameters: OpenLoopParameters, progress: Progress) -> Results:
        results: dict[str, Any] = {}
        for halving in progress.track("at each load", range(parameters.halvings + 1)):
            rate = parameters.rate >> halving
            window = Window(parameters.records >> halving, parameters.records >> halving, parameters.seed)
            with counting(parameters.processes, window) as (engine, records, counts):
                spent = self._at_rate(engine, records, counts, window, rate, parameters)
                check(self, counts, window)
            name = f"load_{rate}"
            results |= percentiles(name, "ms", spent)
            results[f"{name}_latency_ms"] = ccdf(spent)
        return results

    def _at_rate(
        self,
        engine: Engine,
        records: Input,
        counts: View,
        window: Window,
        rate: int,
        parameters: OpenLoopParameters,
    ) -> list[float]:
        """Return the milliseconds from when each batch was due until the view was up to date.

        All batches that are overdue are pushed together, as one epoch.
        """
        period = parameters.period_ms / 1e3
        size = max(2, int(rate * period))
        due = perf_counter() + period
        end, spent = due + parameters.seconds, []
        while due < end:
            sleep(max(0.0, due - perf_counter()))
            overdue = 1 + int(max(0.0, perf_counter() - due) / period)
            step(engine, records, counts, *window.batch(size * overdue))
            done = perf_counter()
            spent += [(done - due - n * period) * 1e3 for n in range(overdue)]
            due += overdue * period
        return spent


@dataclass(frozen=True)
class ScalingParameters(Parameters):
    records: int = parameter(4_000_000, "records in the window of one worker", minimum=1)
    most: int = parameter(2, "the largest number of worker processes", minimum=1)
    batches: int = parameter(100, "measured batches", minimum=1)
    batch: int = parameter(100_000, "updates in a batch", minimum=2)
    seed: int = parameter(0, "seed of the random keys", minimum=0)


class Scaling(Scenario[ScalingParameters]):
    """The closed loop on 1, 2, ... processes, with constant work (strong) and with work that grows with them (weak)."""

    name = "scaling"
    claim = "Two workers have nearly twice the throughput of one."
    paper = "figure 6b, 6c"
    parameters = ScalingParameters

    def run(self, parameters: ScalingParameters, progress: Progress) -> Results:
        results: dict[str, Any] = {}
        kinds = [(kind, n) for kind in ("strong", "weak") for n in range(1, parameters.most + 1)]
        for kind, processes in progress.track("scaling", kinds):
            factor = processes if kind == "weak" else 1
            window = Window(parameters.records * factor, parameters.records * factor, parameters.seed)
            with counting(processes, window) as (engine, records, counts):
                watch = Stopwatch()
                for _ in range(parameters.batches):
                    step(engine, records, counts, *window.batch(parameters.batch * factor))
                seconds = watch.seconds
                check(self, counts, window)
            rate = parameters.batch * factor * parameters.batches / seconds
            results[f"{kind}_{processes}_updates_per_s"] = rate
            results[f"{kind}_{processes}_speedup_ratio"] = rate / results[f"{kind}_1_updates_per_s"]
        return results
