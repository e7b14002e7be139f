"""`tpch-install`: the time to the first answer of each of the 22 queries, on loaded tables.

Measured for each query, in milliseconds:

    java_cold     installing the view over empty tables when Java has not planned the query before
    prepare       from the query text to a collection: Catalyst, and lowering its plan
    cached        the same when the plan is cached
    install       `session.view()` with a cached plan, until the commands are sent to the workers
    answer        the same until `view.to_arrow()` has returned the first answer
    again         like `answer`, for a second view of the same text while the first is installed; the median counts

Queries are installed one after the other and stay installed, so the first query that needs an index builds it for all
later ones. With sharing, the second view of a query must build no index: the run fails if a new arrangement of a base
table appears. Not measured: loading the tables (reported separately as `load_s`).

Differences from the paper: scale 1 instead of 10, and 2 workers instead of 32. `lineitem` is a stream as in the paper,
or a stored table with `--lineitem table`. First answers of queries over the stream are computed over no line items.

Answers are compared with Spark's after a round of changes. Without sharing and with a stored `lineitem`, the indexes of
22 queries may not fit into memory: the round of changes then comes first, and each view is dropped before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ikebana_bench.measure import Stopwatch, ccdf
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter
from ikebana_bench.tpch import data
from ikebana_bench.tpch.schemas import MINIMUM_SCALE, TABLES, numbers, query
from ikebana_bench.tpch.serving import (
    FROM_LINEITEM,
    WITHOUT_LINEITEM,
    Oracle,
    Times,
    apply,
    create,
    fill,
    listed,
    resident,
    spark_session,
    warm,
)
from ikebana_bench.tpch.stream import RefreshStream

if TYPE_CHECKING:
    from ikebana.spark import Session
    from ikebana.spark.view import View

STREAM_TARGET_MS = 10.0
"""Target for the milliseconds to the first answer of a query that reads the stream."""

TARGET_MS = 500.0
"""The same for the other queries, at scale 1."""


@dataclass(frozen=True)
class InstallParameters(Parameters):
    scale: float = parameter(1.0, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    lineitem: str = parameter("stream", "kind of the lineitem table", choices=("stream", "table"))
    shared: bool = parameter(True, "let queries share arrangements")
    queries: str = parameter("all", "query numbers separated by commas, in order of installation, or all")
    repeats: int = parameter(5, "number of times each query is installed again", minimum=1)
    orders: int = parameter(
        20, "random new orders in the round of changes, in addition to those for each query", minimum=1
    )
    workers: int = parameter(2, "number of workers", minimum=1)
    seed: int = parameter(0, "seed of the changes", minimum=0)
    data: str = parameter("build/tpch", "folder for the generated data")

    @property
    def is_stream(self) -> bool:
        return self.lineitem == "stream"


class TpchInstall(Scenario[InstallParameters]):
    """Measure the time from installing a query to its first answer."""

    name = "tpch-install"
    claim = (
        "On loaded tables, queries that read a stream have their first answer within 10 ms, and other queries within "
        "half a second; a query over tables that are already indexed builds no index."
    )
    paper = "figure 1a, §6.1.1"
    parameters = InstallParameters

    def run(self, parameters: InstallParameters, progress: Progress) -> Results:
        from ikebana.spark import connect

        chosen = numbers(parameters.queries)
        tables = data.read(data.tables(parameters.scale, Path(parameters.data)))
        stream = RefreshStream(tables, parameters.seed, orders=parameters.orders)
        with (
            spark_session(parameters.workers) as spark,
            connect(spark, parameters.workers, share=parameters.shared, temp_views=False) as session,
            Oracle(spark, parameters.scale) as oracle,
        ):
            cold = warm(session, stream.snapshot, chosen, progress, stream=parameters.is_stream)
            create(session, stream=parameters.is_stream)
            summary = fill(session, stream.snapshot, progress) | memory("loaded", session)
            prepared = prepare(session, chosen, progress)
            together = parameters.shared or parameters.is_stream
            measure = self._install_together if together else self._install_alone
            measured = measure(session, stream, oracle, parameters, progress)
            if together:
                summary |= memory("installed", session)
        results = {number: {"java_cold_ms": cold[number], **prepared[number], **measured[number]} for number in chosen}
        return {**summary, **dict(summarised(results, parameters)), **dict(listed(results))}

    def _install_together(
        self,
        session: Session,
        stream: RefreshStream,
        oracle: Oracle,
        parameters: InstallParameters,
        progress: Progress,
    ) -> dict[int, Times]:
        """Install all queries, then each a second time, and compare all answers after a round of changes."""
        times, views = {}, {}
        for number in progress.track("installing", numbers(parameters.queries)):
            views[number], _, times[number] = installed(session, number)
        for number in progress.track("installing again", list(views)):
            times[number] |= self._again(session, number, parameters)
        changes = stream.next_round()
        apply(session, changes)
        rows = dict(stream.snapshot)
        if parameters.is_stream:
            rows["lineitem"] = changes["lineitem"].upserts
        for number in progress.track("verifying", list(views)):
            self._compare(number, views[number].to_arrow(), oracle, rows)
        return times

    def _install_alone(
        self,
        session: Session,
        stream: RefreshStream,
        oracle: Oracle,
        parameters: InstallParameters,
        progress: Progress,
    ) -> dict[int, Times]:
        """Apply a round of changes; then install each query, compare its answer, and drop it."""
        times = {}
        apply(session, stream.next_round())
        for number in progress.track("installing and verifying", numbers(parameters.queries)):
            session.engine.run()
            view, answer, times[number] = installed(session, number)
            self._compare(number, answer, oracle, stream.snapshot)
            times[number] |= self._again(session, number, parameters)
            view.drop()
        return times

    def _again(self, session: Session, number: int, parameters: InstallParameters) -> Times:
        """Return the median time of further views of a query, each dropped before the next is installed."""
        spent, name = [], f"q{number} again"
        for _ in range(parameters.repeats):
            before = indexes(session)
            view, _, times = installed(session, number, name)
            spent.append(times["answer_ms"])
            new, own = indexes(session) - before, own_bytes(session, name)
            self.verify(
                not parameters.shared or (not new and own < _MAX_PRIVATE_BYTES),
                f"a second view of Q{number} builds no index",
                detail=f"new indexes: {dict(new)}, {own} bytes in private arrangements",
            )
            view.drop()
            session.engine.run()
        return {"again_ms": float(np.median(spent))}

    def _compare(self, number: int, answer: pa.Table, oracle: Oracle, rows: Mapping[str, pa.Table]) -> None:
        problem = oracle.wrong(number, answer, rows)
        self.verify(not problem, f"Q{number} equals Spark's answer after a round of changes", detail=problem)


def prepare(session: Session, chosen: Sequence[int], progress: Progress) -> dict[int, Times]:
    """Return the time to plan each query, first and from the cache; afterwards the session has cached all plans."""
    from ikebana.spark.querying import Queries
    from ikebana.spark.relations import Relations

    relations = Relations(session.spark)
    for name in TABLES:
        relations.add_table(session.table(name))
    queries = Queries(session.spark, session.engine, "", relations)
    times: dict[int, Times] = {number: {} for number in chosen}
    queries.lower("SELECT r_name FROM region", "a query")  # registers all tables with the planner
    for metric in ("prepare_ms", "cached_ms"):
        for number in progress.track("preparing", chosen):
            watch = Stopwatch()
            queries.lower(query(number), f"Q{number}")
            times[number][metric] = watch.seconds * 1e3
    for number in chosen:
        session.explain(query(number))
    return times


def installed(session: Session, number: int, name: str = "") -> tuple[View, pa.Table, Times]:
    """Install a view of a query, and return the view, its first answer and the times of both."""
    watch = Stopwatch()
    view = session.view(name or f"q{number}", query(number))
    install = watch.seconds
    answer = view.to_arrow()
    return view, answer, {"install_ms": install * 1e3, "answer_ms": watch.seconds * 1e3, "rows": len(answer)}


def own_bytes(session: Session, name: str) -> int:
    """Return the bytes of a view's private arrangements; 0 if the view shares the result of another view."""
    return sum(arrangement.inner_bytes for arrangement in session.arrangements() if arrangement.name == (name,))


_MAX_PRIVATE_BYTES = 1 << 14
"""The most bytes that a second view may arrange privately: constants, and aggregates over no line items."""


def indexes(session: Session) -> Counter[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the number of arrangements of each base table by key, over all workers; streams have none."""
    stored = {name for name in TABLES if session.table(name).kind != "stream"}
    return Counter(
        (arrangement.name, arrangement.key)
        for arrangement in session.arrangements()
        if stored.issuperset(arrangement.name)
    )


def memory(when: str, session: Session) -> dict[str, float]:
    """Return the resident memory of the workers, and the bytes of shareable arrangements."""
    return {f"{when}_resident_bytes": resident(session), f"{when}_held_bytes": session.status().bytes}


def summarised(results: Mapping[int, Times], parameters: InstallParameters) -> Iterator[tuple[str, Any]]:
    """Yield medians, maxima and target ratios over all queries of a kind."""
    for metric in ("prepare_ms", "cached_ms"):
        yield f"all_{metric}", float(np.median([times[metric] for times in results.values()]))
    for kind, members in {"from_lineitem": FROM_LINEITEM, "without_lineitem": WITHOUT_LINEITEM}.items():
        for metric in ("answer", "again"):
            spent = [times[f"{metric}_ms"] for number, times in results.items() if number in members]
            if not spent:
                continue
            target = STREAM_TARGET_MS if parameters.is_stream and members is FROM_LINEITEM else TARGET_MS
            yield f"{kind}_{metric}_p50_ms", float(np.median(spent))
            yield f"{kind}_{metric}_max_ms", max(spent)
            yield f"{kind}_{metric}_target_ratio", target / max(spent)
            yield f"{kind}_{metric}_ms", ccdf(spent)
