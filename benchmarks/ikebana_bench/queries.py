"""`join-proportionality` and `idle-queries`: the cost of a new query (figure 6f) and of idle queries.

`join-proportionality` arranges many keys once, and then installs joins of small collections of increasing size with
them. Measured is the time from inserting the small collection to the complete answer; arranging the large collection
and reading the answer are not measured. The time should be proportional to the small collection, because the large one
is shared and searched by galloping. `rust_anchor_ratio` is explained in `ikebana_bench.arrange`.

`idle-queries` measures the time from a change to the updated result of one query, first alone and then next to a
thousand queries over an input that does not change. Installing the idle queries is not measured. `idle_dataflow_bytes`
is what each of their dataflows adds to the resident memory of the process, without the rows of its arrangements: the
objects of a worker and of the driver.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Input, View
from ikebana_bench.measure import Stopwatch, percentiles, resident_bytes
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

# Milliseconds of the Rust reference with one worker to install and answer a join with 10M keys, by number of keys.
RUST_MS = {1: 0.95, 10: 7.2, 100: 12, 1_000: 19.5, 10_000: 34, 100_000: 84, 1_000_000: 350}


@dataclass(frozen=True)
class JoinParameters(Parameters):
    keys: int = parameter(10_000_000, "keys arranged beforehand", minimum=1)
    largest: int = parameter(1_000_000, "keys of the largest collection joined with them", minimum=1)
    repeats: int = parameter(5, "number of joins of each size; the median counts", minimum=1)
    processes: int = parameter(0, "worker processes; 0 for a worker in this process", minimum=0)
    seed: int = parameter(0, "seed of the joined keys", minimum=0)


class JoinProportionality(Scenario[JoinParameters]):
    """Join 1, 10, 100, ... keys with a large arrangement."""

    name = "join-proportionality"
    claim = "Installing a join with a shared arrangement takes time proportional to the smaller input."
    paper = "figure 6f"
    parameters = JoinParameters

    def run(self, parameters: JoinParameters, progress: Progress) -> Results:
        random = np.random.default_rng(parameters.seed)
        results: dict[str, Any] = {}
        sizes = [size for size in RUST_MS if size <= min(parameters.largest, parameters.keys)]
        cluster = Processes(parameters.processes) if parameters.processes else None
        with Engine(cluster=cluster) as engine:
            large = engine.input("large", {"key": pa.int64(), "val": pa.int64()}, key="key")
            large.insert({"key": np.arange(parameters.keys), "val": np.arange(parameters.keys) * 3})
            engine.advance()
            engine.run()
            for size in progress.track("installing", sizes):
                spent = []
                for repeat in range(parameters.repeats):
                    keys = random.choice(parameters.keys, size, replace=False)
                    spent.append(self._install(engine, large, keys, f"{size}/{repeat}"))
                median = float(np.median(spent))
                results |= {f"keys_{size}_ms": median, f"keys_{size}_rust_anchor_ratio": RUST_MS[size] / median}
        return results

    def _install(self, engine: Engine, large: Input, keys: np.ndarray, name: str) -> float:
        """Return the milliseconds from inserting `keys` until their join with `large` is complete."""
        watch = Stopwatch()
        small = engine.input(f"small {name}", {"key": pa.int64()})
        small.insert({"key": keys})
        engine.advance()
        view = engine.install(f"join {name}", small.join(large, on="key"))
        view.wait(engine.epoch - 1)
        spent = watch.seconds * 1e3
        answer = view.read()
        self.verify(
            np.array_equal(np.sort(answer["key"].to_numpy()), np.sort(keys))
            and bool((answer["val"].to_numpy() == 3 * answer["key"].to_numpy()).all()),
            f"a join of {len(keys)} keys has the expected rows",
        )
        view.drop()
        return spent


@dataclass(frozen=True)
class IdleParameters(Parameters):
    idle: int = parameter(1_000, "number of idle queries", minimum=1)
    rows: int = parameter(100_000, "rows of the table that changes", minimum=1)
    changes: int = parameter(200, "measured changes", minimum=1)
    workers: int = parameter(1, "workers, in this process", minimum=1)


class IdleQueries(Scenario[IdleParameters]):
    """Measure one busy query alone, and then among many idle ones."""

    name = "idle-queries"
    claim = "Installed queries whose inputs do not change cost nothing."
    paper = "§3.3"
    parameters = IdleParameters

    def run(self, parameters: IdleParameters, progress: Progress) -> Results:
        with Engine(parameters.workers) as engine:
            busy = engine.input("busy", {"key": pa.int64(), "val": pa.int64()}, key="key")
            quiet = engine.input("quiet", {"key": pa.int64(), "val": pa.int64()}, key="key")
            busy.insert({"key": np.arange(parameters.rows) % 1_000, "val": np.arange(parameters.rows)})
            quiet.insert({"key": np.arange(1_000), "val": np.arange(1_000)})
            engine.advance()
            counts = engine.install("counts", busy.count("key"))
            alone = self._change(engine, busy, counts, parameters)
            before = Footprint.of(engine)
            for at in progress.track("installing", range(parameters.idle)):
                chosen = quiet.map({"key": pa.int64()}, partial(_shifted, by=at))
                engine.install(f"idle {at}", chosen.count("key")).wait(engine.epoch - 1)
            installed = Footprint.of(engine)
            among = self._change(engine, busy, counts, parameters)
            total = int(np.sum(counts.read()["count"].to_numpy()))
        self.verify(total == parameters.rows + 2 * parameters.changes, "every change was counted")
        return {
            **percentiles("alone", "ms", alone),
            **percentiles("among_idle", "ms", among),
            "slowdown_ratio": float(np.median(among) / np.median(alone)),
            "idle_dataflow_bytes": installed.bytes_of_a_dataflow(before),
        }

    def _change(self, engine: Engine, busy: Input, counts: View, parameters: IdleParameters) -> list[float]:
        spent = []
        for at in range(parameters.changes):
            watch = Stopwatch()
            busy.insert({"key": [at % 1_000], "val": [-engine.epoch]})
            engine.advance()
            counts.wait(engine.epoch - 1)
            spent.append(watch.seconds * 1e3)
        return spent


@dataclass(frozen=True)
class Footprint:
    """The memory of an engine in this process, without the rows of its arrangements, and its dataflows."""

    bytes: int
    dataflows: int

    @staticmethod
    def of(engine: Engine) -> Footprint:
        gc.collect()
        arrangements = engine.status()
        held = sum(arrangement.bytes + arrangement.inner_bytes for arrangement in arrangements)
        return Footprint(resident_bytes() - held, len({arrangement.dataflow for arrangement in arrangements}))

    def bytes_of_a_dataflow(self, before: Footprint) -> float:
        """The bytes that each of the dataflows takes that did not exist before."""
        return (self.bytes - before.bytes) / (self.dataflows - before.dataflows)


def _shifted(columns: dict[str, pa.Array], by: int) -> dict[str, Any]:
    return {"key": columns["key"].to_numpy() + by}
