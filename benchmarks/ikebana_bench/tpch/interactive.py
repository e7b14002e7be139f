"""`tpch-interactive`: queries of TPC-H that are installed and retired while the tables grow (figure 1).

Seven tables are stored and indexed by their keys. A fraction of their rows is loaded at the start; the others are
inserted in rounds of `--rows` rows per table, until a table has no more. `lineitem` is a stream: a query sees only the
rows that arrive after its installation. Ten of the 22 queries are active at any time. Every few rounds, a randomly
chosen active query is retired, and a random inactive query is installed. Measured are

    install    from `session.view()` until `view.to_arrow()` has returned the first answer, with a cached Catalyst plan
    update     from inserting the rows of a round until all active queries are up to date
    memory     resident memory of the workers after each round, without shared libraries

first with sharing and then without, where every query builds all its indexes itself. Rows, queries and rounds are the
same in both settings. Not measured: loading the tables, and planning with Catalyst (see `tpch-install`).

Differences from the paper: scale 1 instead of 10, and 2 workers instead of 32. The tables are half loaded when the
first query is installed. Without sharing, the tables are stored as well, because later queries need their history:
compare `queries_resident`, the memory that the queries add to the loaded tables. The workers may not return the memory
of a retired query to the operating system.

All final answers, and a random sample of first answers, are compared with Spark's over the same rows. A run of at
least `MEASURED_ROUNDS` rounds fails if memory grows although retired queries are dropped.

Ratios: `unshared_over_shared_ratio` is the time or memory without sharing over that with sharing; `target_ratio` is
above 1 if the target was met.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ikebana.errors import IkebanaError
from ikebana_bench.measure import Series, Stopwatch, ccdf, compiled_shares, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Parameters, Results, Scenario, parameter
from ikebana_bench.tpch import data
from ikebana_bench.tpch.schemas import MINIMUM_SCALE, QUERIES, numbers, query
from ikebana_bench.tpch.serving import WITHOUT_LINEITEM, Oracle, create, fill, resident, spark_session, warm

if TYPE_CHECKING:
    from ikebana.spark import Session
    from ikebana.spark.view import View

INSTALL_TARGET_MS = 10.0
"""Target for the slowest first answer of a query that reads lineitem."""

MOST_GROWTH, MEASURED_ROUNDS = 1.6, 100
"""How far memory may grow from the first quarter of the rounds to the last, if there are at least so many: the tables
grow by a few percent, and the queries come and go."""

INSTALL_TARGET, UPDATE_TARGET, MEMORY_TARGET = 50.0, 2.0, 2.5
"""Targets for unshared over shared: installation of a query that reads lineitem, update of a round, memory."""

SETTINGS = {"shared": True, "unshared": False}

_SMALL = ("region", "nation")
"""Tables that are loaded completely at the start."""


class Feed:
    """The rows of all tables: a loaded fraction, and then `rows` of each table per round while there are any."""

    def __init__(self, tables: Mapping[str, pa.Table], loaded: float, rows: int) -> None:
        self._tables, self._rows = dict(tables), rows
        self._first = {name: ceil(table.num_rows * loaded) for name, table in tables.items()}
        self._first |= {name: tables[name].num_rows for name in _SMALL}
        self._snapshot: tuple[int, dict[str, pa.Table]] = (-1, {})

    def _until(self, name: str, number: int) -> int:
        """Return the number of rows of a table after a round; round 0 is the initial load."""
        return min(self._first[name] + number * self._rows, self._tables[name].num_rows)

    def between(self, name: str, after: int, number: int) -> pa.Table:
        """Return the rows that a table received after round `after`, up to and including round `number`."""
        start = self._until(name, after)
        return self._tables[name].slice(start, self._until(name, number) - start)

    def round(self, number: int) -> dict[str, pa.Table]:
        """Return the rows of a round, by table."""
        slices = {name: self.between(name, number - 1, number) for name in self._tables}
        return {name: rows for name, rows in slices.items() if rows.num_rows}

    def snapshot(self, number: int) -> dict[str, pa.Table]:
        """Return all tables after a round, including `lineitem`."""
        if self._snapshot[0] != number:
            self._snapshot = (
                number,
                {name: self._tables[name].slice(0, self._until(name, number)) for name in self._tables},
            )
        return self._snapshot[1]


class QuerySchedule:
    """A random choice of the initial queries, and of the queries that are retired and installed."""

    def __init__(self, numbers: Sequence[int], active: int, seed: int) -> None:
        if not active < len(numbers):
            raise IkebanaError(
                f"{active} of {len(numbers)} queries cannot be active at a time",
                detail="at least one query must be inactive, so that it can replace another",
                hint="reduce --active, or add numbers to --queries",
            )
        self._random, self._numbers = random.Random(seed), numbers
        self.active = self._random.sample(numbers, active)

    def next(self) -> tuple[int, int]:
        """Return the active query that is retired next, and the inactive query that replaces it."""
        retired = self._random.choice(self.active)
        replacement = self._random.choice([number for number in self._numbers if number not in self.active])
        self.active[self.active.index(retired)] = replacement
        return retired, replacement


@dataclass(frozen=True)
class ActiveQuery:
    """An installed query, the round after which it was installed, and its first answer."""

    number: int
    view: View
    round: int
    answer: pa.Table


@dataclass
class Measured:
    """The measurements of one setting."""

    install_ms: dict[int, list[float]] = field(default_factory=lambda: {number: [] for number in QUERIES})
    update_ms: list[float] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    resident_bytes: list[float] = field(default_factory=list)
    before_bytes: int = 0
    shares: dict[str, float] = field(default_factory=dict)

    def installs(self, *, lineitem: bool) -> list[float]:
        """Return the installation times of the queries that read lineitem, or of the others."""
        return [ms for n, spent in self.install_ms.items() for ms in spent if (n not in WITHOUT_LINEITEM) == lineitem]

    @property
    def late_bytes(self) -> float:
        """The median of the resident memory in the second half of the rounds."""
        return float(np.median(self.resident_bytes[len(self.resident_bytes) // 2 :]))

    @property
    def growth(self) -> float:
        """The resident memory in the last quarter of the rounds over that in the first."""
        quarter = -(-len(self.resident_bytes) // 4)
        return float(np.median(self.resident_bytes[-quarter:]) / np.median(self.resident_bytes[:quarter]))


@dataclass(frozen=True)
class InteractiveParameters(Parameters):
    scale: float = parameter(1.0, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    loaded: float = parameter(0.5, "fraction of each table that is loaded at the start", minimum=0)
    rounds: int = parameter(400, "number of rounds of updates", minimum=1)
    seconds: float = parameter(0.0, "time limit for the rounds of a setting, in seconds; 0 for no limit", minimum=0)
    rows: int = parameter(100, "rows of each table in a round", minimum=1)
    queries: str = parameter("all", "numbers of the queries to choose from, separated by commas, or all")
    active: int = parameter(10, "number of active queries", minimum=1)
    every: int = parameter(4, "number of rounds after which a query is replaced", minimum=1)
    checks: int = parameter(
        4, "number of first answers that are compared with Spark's, in addition to all final answers", minimum=0
    )
    sharing: str = parameter("both", "settings to measure", choices=("both", *SETTINGS))
    workers: int = parameter(2, "number of workers", minimum=1)
    seed: int = parameter(0, "seed of the choice of queries", minimum=0)
    data: str = parameter("build/tpch", "folder for the generated data")

    @property
    def settings(self) -> Sequence[str]:
        return tuple(SETTINGS) if self.sharing == "both" else (self.sharing,)


class TpchInteractive(Scenario[InteractiveParameters]):
    """Measure installation latency, update latency and memory, with and without sharing."""

    name = "tpch-interactive"
    claim = (
        "With shared arrangements, queries are installed within milliseconds, and ten queries need half of the memory; "
        "small updates take as long as without."
    )
    paper = "figure 1, §6.1.1"
    parameters = InteractiveParameters

    def run(self, parameters: InteractiveParameters, progress: Progress) -> Results:
        tables = data.read(data.tables(parameters.scale, Path(parameters.data)))
        feed = Feed(tables, parameters.loaded, parameters.rows)
        measurements = {}
        with spark_session(parameters.workers) as spark, Oracle(spark, parameters.scale) as oracle:
            for setting in parameters.settings:
                measurements[setting] = self._measure(spark, oracle, feed, setting, parameters, progress)
        results = {
            name: value for setting, measured in measurements.items() for name, value in metrics(setting, measured)
        }
        return results | dict(compared(measurements))

    def _measure(
        self,
        spark: Any,
        oracle: Oracle,
        feed: Feed,
        setting: str,
        parameters: InteractiveParameters,
        progress: Progress,
    ) -> Measured:
        from ikebana.spark import connect

        chosen, measured = numbers(parameters.queries), Measured()
        with connect(spark, parameters.workers, share=SETTINGS[setting], temp_views=False) as session:
            prepare(session, feed, chosen, progress)
            measured.before_bytes = resident(session)
            schedule = QuerySchedule(chosen, parameters.active, parameters.seed)
            active = {number: install(session, number, 0, measured) for number in schedule.active}
            installed = list(active.values())
            number, clock = 0, Stopwatch()
            for number in progress.track(f"rounds, {setting}", range(1, parameters.rounds + 1)):
                if number % parameters.every == 0:
                    retired, replacement = schedule.next()
                    active.pop(retired).view.drop()
                    active[replacement] = install(session, replacement, number - 1, measured)
                    installed.append(active[replacement])
                measured.update_ms.append(update(session, feed.round(number)))
                measured.at_s.append(clock.seconds)
                measured.resident_bytes.append(resident(session))
                if 0 < parameters.seconds < clock.seconds:
                    break
            measured.shares = compiled_shares(session.engine, f"{setting}_")
            self.verify(
                number < MEASURED_ROUNDS or measured.growth < MOST_GROWTH,
                f"retired queries free their memory ({setting})",
                detail=f"it is {measured.growth:.1f} times what it was in the first rounds",
            )
            self._compare_last(oracle, feed, list(active.values()), number, progress)
        self._compare_first(oracle, feed, sampled(installed, parameters), progress)
        return measured

    def _compare_last(
        self, oracle: Oracle, feed: Feed, queries: Sequence[ActiveQuery], number: int, progress: Progress
    ) -> None:
        """Compare the final answers, each over the line items that arrived after the query's installation."""
        for active in progress.track("verifying final answers", queries):
            rows = feed.snapshot(number) | {"lineitem": feed.between("lineitem", active.round, number)}
            problem = oracle.wrong(active.number, active.view.to_arrow(), rows)
            self.verify(not problem, f"the final answer of Q{active.number} equals Spark's", detail=problem)

    def _compare_first(self, oracle: Oracle, feed: Feed, queries: Sequence[ActiveQuery], progress: Progress) -> None:
        """Compare first answers, which are computed over no line items."""
        for active in progress.track("verifying first answers", queries):
            rows = feed.snapshot(active.round) | {"lineitem": feed.between("lineitem", active.round, active.round)}
            problem = oracle.wrong(active.number, active.answer, rows)
            self.verify(not problem, f"the first answer of Q{active.number} equals Spark's", detail=problem)

    def figures(self, results: Results) -> Sequence[Figure]:
        """Return the three panels of figure 1: installation, update, memory."""

        def curves(metric: str) -> dict[str, Series]:
            curves = {setting: results.get(f"{setting}_{metric}") for setting in SETTINGS}
            return {setting: series for setting, series in curves.items() if isinstance(series, Series)}

        memory = {
            setting: Series(series.x, tuple(value / 2**30 for value in series.y))
            for setting, series in curves("over_time_bytes").items()
        }
        return [
            Figure("query installation", "milliseconds", curves("install_ms")),
            Figure("updates", "milliseconds", curves("update_ms")),
            Figure("memory", "seconds", memory, "resident GiB", x_scale="linear", y_scale="linear"),
        ]


def prepare(session: Session, feed: Feed, chosen: Sequence[int], progress: Progress) -> None:
    """Warm up the workers, load the initial rows, and plan all queries."""
    warm(session, feed.snapshot(0), chosen, progress, stream=True)
    create(session, stream=True)
    fill(session, feed.snapshot(0), progress)
    for number in progress.track("planning", chosen):
        session.explain(query(number))


def install(session: Session, number: int, after: int, measured: Measured) -> ActiveQuery:
    """Install a query after round `after`, read its first answer, and record the time of both."""
    name = f"q{number} after round {after}"
    watch = Stopwatch()
    view = session.view(name, query(number))
    answer = view.to_arrow()
    measured.install_ms[number].append(watch.seconds * 1e3)
    return ActiveQuery(number, view, after, answer)


def update(session: Session, rows: Mapping[str, pa.Table]) -> float:
    """Insert the rows of a round, and return the milliseconds until all views are up to date."""
    watch = Stopwatch()
    with session.transaction():
        for name, table in rows.items():
            session.table(name).insert(table)
    session.engine.wait()
    return watch.seconds * 1e3


def sampled(queries: Sequence[ActiveQuery], parameters: InteractiveParameters) -> list[ActiveQuery]:
    """Return a random sample of the queries that do not read lineitem; the first answers of the others are trivial."""
    candidates = [active for active in queries if active.number in WITHOUT_LINEITEM]
    return random.Random(parameters.seed).sample(candidates, min(parameters.checks, len(candidates)))


def metrics(setting: str, measured: Measured) -> Iterator[tuple[str, Any]]:
    """Yield the metrics of a setting."""
    every = [ms for spent in measured.install_ms.values() for ms in spent]
    kinds = {"from_lineitem": measured.installs(lineitem=True), "without_lineitem": measured.installs(lineitem=False)}
    for kind, spent in {"all": every, **kinds}.items():
        if spent:
            yield f"{setting}_{kind}_installs", len(spent)
            yield from percentiles(f"{setting}_{kind}_install", "ms", spent).items()
    for number, spent in measured.install_ms.items():
        if spent:
            yield f"{setting}_q{number}_install_p50_ms", float(np.median(spent))
    yield from percentiles(f"{setting}_update", "ms", measured.update_ms).items()
    yield from measured.shares.items()
    yield f"{setting}_rounds", len(measured.update_ms)
    yield f"{setting}_loaded_resident_bytes", measured.before_bytes
    yield f"{setting}_late_resident_bytes", measured.late_bytes
    yield f"{setting}_queries_resident_bytes", max(0.0, measured.late_bytes - measured.before_bytes)
    yield f"{setting}_max_resident_bytes", max(measured.resident_bytes)
    yield f"{setting}_growth_ratio", measured.growth
    yield f"{setting}_install_ms", ccdf(every)
    yield f"{setting}_update_ms", ccdf(measured.update_ms)
    yield f"{setting}_over_time_bytes", Series(tuple(measured.at_s), tuple(measured.resident_bytes))


def compared(measurements: Mapping[str, Measured]) -> Iterator[tuple[str, float]]:
    """Yield the ratios between both settings, and the ratios to the targets."""
    installs = {setting: measured.installs(lineitem=True) for setting, measured in measurements.items()}
    if installs.get("shared"):
        yield "from_lineitem_install_target_ratio", INSTALL_TARGET_MS / max(installs["shared"])
    if len(measurements) < len(SETTINGS):
        return
    shared, unshared = measurements["shared"], measurements["unshared"]
    ratios = {
        "update": (np.median(unshared.update_ms) / np.median(shared.update_ms), UPDATE_TARGET),
        "memory": (unshared.late_bytes / shared.late_bytes, MEMORY_TARGET),
    }
    if installs["shared"]:
        install_ratio = np.median(installs["unshared"]) / np.median(installs["shared"])
        ratios["from_lineitem_install"] = install_ratio, INSTALL_TARGET
    for name, (ratio, target) in ratios.items():
        yield f"{name}_unshared_over_shared_ratio", float(ratio)
        yield f"{name}_sharing_target_ratio", float(ratio / target)
