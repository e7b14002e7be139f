"""`tpch-interactive`: queries of TPC-H that come and go while its tables grow (figure 1).

Seven tables are kept, indexed by their keys. Some of their rows are there at first, the others come in rounds, so many
of each table in a round, until it has no more. `lineitem` is a stream: a query sees what comes after its installation.
Ten of the 22 queries are active at any time: every few rounds one of them, chosen at random, is retired, and another
takes its place. Measured are

    install    from `session.view()` until its first answer is here, `view.to_arrow()`; Catalyst's plan of it is kept
    update     from a round's rows to the answers of all active queries
    memory     what the workers have resident after each round, libraries that they share aside

with sharing and then without, where every query builds all its indexes itself; the same rows, queries and moments in
both. Without sharing the tables are kept beside them, since queries to come need their history.

Final answers are compared with Spark's over the same rows, and so are some first answers, which are random too.
`queries_resident` is what was added to the memory of the loaded tables. Not guaranteed: that memory is given back to
the system when a query is retired.

Ratios: `unshared_over_shared_ratio` is how many times as much time or memory it takes not to share; `target_ratio` is
above 1 where the target was met.
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
from ikebana_bench.measure import Series, Stopwatch, ccdf, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Parameters, Results, Scenario, parameter
from ikebana_bench.tpch import data
from ikebana_bench.tpch.schemas import MINIMUM_SCALE, QUERIES, numbers, query
from ikebana_bench.tpch.serving import WITHOUT_LINEITEM, Oracle, create, fill, resident, spark_session, warm

if TYPE_CHECKING:
    from ikebana.spark import Session
    from ikebana.spark.view import View

INSTALL_TARGET_MS = 10.0
"""Every query that starts from lineitem should have its first answer by then."""

INSTALL_TARGET, UPDATE_TARGET, MEMORY_TARGET = 50.0, 2.0, 2.5
"""How many times as much not to share should take: of installing such a query, of a round, of memory."""

SETTINGS = {"shared": True, "unshared": False}

_SMALL = ("region", "nation")
"""Tables that are complete from the beginning."""


class Feed:
    """The rows of all tables: some at first, then so many of each in a round, as long as there are any."""

    def __init__(self, tables: Mapping[str, pa.Table], loaded: float, rows: int) -> None:
        self._tables, self._rows = dict(tables), rows
        self._first = {name: ceil(table.num_rows * loaded) for name, table in tables.items()}
        self._first |= {name: tables[name].num_rows for name in _SMALL}
        self._snapshot: tuple[int, dict[str, pa.Table]] = (-1, {})

    def _until(self, name: str, number: int) -> int:
        """How many rows of a table there are after a round; round 0 is what is there at first."""
        return min(self._first[name] + number * self._rows, self._tables[name].num_rows)

    def between(self, name: str, after: int, number: int) -> pa.Table:
        """The rows of a table that came after one round, up to and with another."""
        start = self._until(name, after)
        return self._tables[name].slice(start, self._until(name, number) - start)

    def round(self, number: int) -> dict[str, pa.Table]:
        """What comes in a round."""
        slices = {name: self.between(name, number - 1, number) for name in self._tables}
        return {name: rows for name, rows in slices.items() if rows.num_rows}

    def snapshot(self, number: int) -> dict[str, pa.Table]:
        """All tables after a round, `lineitem` too."""
        if self._snapshot[0] != number:
            self._snapshot = (
                number,
                {name: self._tables[name].slice(0, self._until(name, number)) for name in self._tables},
            )
        return self._snapshot[1]


class Visits:
    """Which queries are there at first, and who comes in whose place, at random."""

    def __init__(self, numbers: Sequence[int], active: int, seed: int) -> None:
        if not active < len(numbers):
            raise IkebanaError(f"{active} of {len(numbers)} queries cannot be active", hint="leave one that can come")
        self._random, self._numbers = random.Random(seed), numbers
        self.present = self._random.sample(numbers, active)

    def next(self) -> tuple[int, int]:
        """The query that leaves, and one that comes and is not there."""
        gone = self._random.choice(self.present)
        come = self._random.choice([number for number in self._numbers if number not in self.present])
        self.present[self.present.index(gone)] = come
        return gone, come


@dataclass(frozen=True)
class Guest:
    """An active query, when it came, and its first answer."""

    number: int
    view: View
    round: int
    answer: pa.Table


@dataclass
class Measured:
    """What was measured in one setting."""

    install_ms: dict[int, list[float]] = field(default_factory=lambda: {number: [] for number in QUERIES})
    update_ms: list[float] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    resident_bytes: list[float] = field(default_factory=list)
    before_bytes: int = 0

    def installs(self, *, lineitem: bool) -> list[float]:
        """What installations took of queries that start from lineitem, or of the others."""
        return [ms for n, spent in self.install_ms.items() for ms in spent if (n not in WITHOUT_LINEITEM) == lineitem]

    @property
    def late_bytes(self) -> float:
        """Resident memory in the second half of the rounds, at median."""
        return float(np.median(self.resident_bytes[len(self.resident_bytes) // 2 :]))


@dataclass(frozen=True)
class InteractiveParameters(Parameters):
    scale: float = parameter(1.0, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    loaded: float = parameter(0.5, "fraction of each table that is there at first", minimum=0)
    rounds: int = parameter(400, "rounds of updates", minimum=1)
    seconds: float = parameter(0.0, "end the rounds of a setting after so many seconds; 0 for no limit", minimum=0)
    rows: int = parameter(100, "rows of each table in a round", minimum=1)
    queries: str = parameter("all", "numbers of the queries that come and go, with commas between")
    active: int = parameter(10, "active queries", minimum=1)
    every: int = parameter(4, "rounds after which a query is replaced", minimum=1)
    checks: int = parameter(4, "first answers that are compared with Spark's, beside all final ones", minimum=0)
    sharing: str = parameter("both", "which settings are measured", choices=("both", *SETTINGS))
    workers: int = parameter(2, "workers", minimum=1)
    seed: int = parameter(0, "seed of which queries come and go", minimum=0)
    data: str = parameter("build/tpch", "folder for the data, which is made once")

    @property
    def settings(self) -> Sequence[str]:
        return tuple(SETTINGS) if self.sharing == "both" else (self.sharing,)


class TpchInteractive(Scenario[InteractiveParameters]):
    """Installation latency, update latency and memory, with and without sharing."""

    name = "tpch-interactive"
    claim = (
        "With shared arrangements queries are installed within milliseconds, updates take half the time, and ten "
        "queries need two to three times less memory."
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
        with connect(spark, parameters.workers, share=SETTINGS[setting]) as session:
            prepare(session, feed, chosen, progress)
            measured.before_bytes = resident(session)
            visits = Visits(chosen, parameters.active, parameters.seed)
            guests = {number: welcome(session, number, 0, measured) for number in visits.present}
            seen = list(guests.values())
            number, clock = 0, Stopwatch()
            for number in progress.track(f"rounds, {setting}", range(1, parameters.rounds + 1)):
                if number % parameters.every == 0:
                    gone, come = visits.next()
                    guests.pop(gone).view.drop()
                    guests[come] = welcome(session, come, number - 1, measured)
                    seen.append(guests[come])
                measured.update_ms.append(update(session, feed.round(number)))
                measured.at_s.append(clock.seconds)
                measured.resident_bytes.append(resident(session))
                if 0 < parameters.seconds < clock.seconds:
                    break
            self._compare_last(oracle, feed, list(guests.values()), number, progress)
        self._compare_first(oracle, feed, sampled(seen, parameters), progress)
        return measured

    def _compare_last(
        self, oracle: Oracle, feed: Feed, guests: Sequence[Guest], number: int, progress: Progress
    ) -> None:
        """All active queries, over the line items that each has seen."""
        for guest in progress.track("verifying final answers", guests):
            rows = feed.snapshot(number) | {"lineitem": feed.between("lineitem", guest.round, number)}
            problem = oracle.wrong(guest.number, guest.view.to_arrow(), rows)
            self.verify(not problem, f"Q{guest.number} equals Spark's answer at the end", detail=problem)

    def _compare_first(self, oracle: Oracle, feed: Feed, guests: Sequence[Guest], progress: Progress) -> None:
        for guest in progress.track("verifying first answers", guests):
            rows = feed.snapshot(guest.round) | {"lineitem": feed.between("lineitem", guest.round, guest.round)}
            problem = oracle.wrong(guest.number, guest.answer, rows)
            self.verify(not problem, f"the first answer of Q{guest.number} equals Spark's", detail=problem)

    def figures(self, results: Results) -> Sequence[Figure]:
        """As in the paper: installation, update, memory."""

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
    """Tables as they are at first, workers that have loaded their code, and plans of all queries."""
    warm(session, feed.snapshot(0), chosen, progress, stream=True)
    create(session, stream=True)
    fill(session, feed.snapshot(0), progress)
    for number in progress.track("planning", chosen):
        session.explain(query(number))


def welcome(session: Session, number: int, after: int, measured: Measured) -> Guest:
    """Install a query after a round."""
    name = f"q{number} after round {after}"
    watch = Stopwatch()
    view = session.view(name, query(number))
    answer = view.to_arrow()
    measured.install_ms[number].append(watch.seconds * 1e3)
    return Guest(number, view, after, answer)


def update(session: Session, rows: Mapping[str, pa.Table]) -> float:
    """Milliseconds from a round's rows to the answers of all views."""
    watch = Stopwatch()
    with session.transaction():
        for name, table in rows.items():
            session.table(name).insert(table)
    session.engine.wait()
    return watch.seconds * 1e3


def sampled(guests: Sequence[Guest], parameters: InteractiveParameters) -> list[Guest]:
    """Some of those whose first answers say something: a query over no line items has next to none."""
    candidates = [guest for guest in guests if guest.number in WITHOUT_LINEITEM]
    return random.Random(parameters.seed).sample(candidates, min(parameters.checks, len(candidates)))


def metrics(setting: str, measured: Measured) -> Iterator[tuple[str, Any]]:
    """What was measured in a setting."""
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
    yield f"{setting}_rounds", len(measured.update_ms)
    yield f"{setting}_loaded_resident_bytes", measured.before_bytes
    yield f"{setting}_late_resident_bytes", measured.late_bytes
    yield f"{setting}_queries_resident_bytes", max(0.0, measured.late_bytes - measured.before_bytes)
    yield f"{setting}_max_resident_bytes", max(measured.resident_bytes)
    yield f"{setting}_install_ms", ccdf(every)
    yield f"{setting}_update_ms", ccdf(measured.update_ms)
    yield f"{setting}_over_time_bytes", Series(tuple(measured.at_s), tuple(measured.resident_bytes))


def compared(measurements: Mapping[str, Measured]) -> Iterator[tuple[str, float]]:
    """Both settings, and what is aimed at."""
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
        install = np.median(installs["unshared"]) / np.median(installs["shared"])
        ratios["from_lineitem_install"] = install, INSTALL_TARGET
    for name, (ratio, target) in ratios.items():
        yield f"{name}_unshared_over_shared_ratio", float(ratio)
        yield f"{name}_sharing_target_ratio", float(ratio / target)
