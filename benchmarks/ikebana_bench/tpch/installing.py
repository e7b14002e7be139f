"""`tpch-install`: how soon each of the 22 queries has its first answer, on tables that are loaded.

Of each query are measured, in milliseconds:

    java_cold     the view over empty tables, when Java has not planned this query before
    prepare       from text to a collection, when Java has: Catalyst, and lowering its plan
    cached        the same for a text whose plan is kept
    install       `session.view()` with a kept plan: until workers have the commands
    answer        the same until the first answer is here: `view.to_arrow()`
    again         as `answer`, for a further view of the same text while the first is there; the median of some

Queries are installed one after the other, in order, and stay: an index that several need is built by the first of them.
The further view must build none: with sharing, no arrangement of base tables may appear. `lineitem` is a stream as in
the paper, or a kept table; queries over a stream have their first answer over no rows of it.

Answers are compared with Spark's after a round of changes. Without sharing, and with `lineitem` kept, each view is
dropped before the next, since 22 copies may not fit into memory: the changes then come first.
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
"""Milliseconds to the first answer of a query that starts from a stream."""

TARGET_MS = 500.0
"""The same of others, at scale 1."""


@dataclass(frozen=True)
class InstallParameters(Parameters):
    scale: float = parameter(1.0, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    lineitem: str = parameter("stream", "what lineitem is", choices=("stream", "table"))
    shared: bool = parameter(True, "let queries share arrangements")
    queries: str = parameter("all", "numbers of the queries, in the order in which they are installed")
    repeats: int = parameter(5, "how often each query is installed again", minimum=1)
    orders: int = parameter(20, "new orders of the round of changes, beside those made for each query", minimum=1)
    workers: int = parameter(2, "workers", minimum=1)
    seed: int = parameter(0, "seed of the changes", minimum=0)
    data: str = parameter("build/tpch", "folder for the data, which is made once")

    @property
    def is_stream(self) -> bool:
        return self.lineitem == "stream"


class TpchInstall(Scenario[InstallParameters]):
    """Each of the 22, from the command to the first answer."""

    name = "tpch-install"
    claim = (
        "On loaded tables, queries that start from a stream have their first answer within 10 ms, and others within "
        "half a second; a query over tables that are indexed already builds no index."
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
            connect(spark, parameters.workers, share=parameters.shared) as session,
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
        """Install all, then each again beside them, and compare after a round of changes."""
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
        """Install each on tables that have changed, compare, and drop it."""
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
        """What further views of one of the 22 take at median, each dropped before the next."""
        spent, name = [], f"q{number} again"
        for _ in range(parameters.repeats):
            before = indexes(session)
            view, _, times = installed(session, number, name)
            spent.append(times["answer_ms"])
            new, own = indexes(session) - before, own_bytes(session, name)
            self.verify(
                not parameters.shared or (not new and own < _NEXT_TO_NOTHING),
                f"a further view of Q{number} builds no index",
                detail=f"new: {new}, {own} bytes of its own",
            )
            view.drop()
            session.engine.run()
        return {"again_ms": float(np.median(spent))}

    def _compare(self, number: int, answer: pa.Table, oracle: Oracle, rows: Mapping[str, pa.Table]) -> None:
        problem = oracle.wrong(number, answer, rows)
        self.verify(not problem, f"Q{number} equals Spark's answer after a round of changes", detail=problem)


def prepare(session: Session, chosen: Sequence[int], progress: Progress) -> dict[int, Times]:
    """What planning each query takes; the session has planned all of them when this is done."""
    from ikebana.spark.querying import Queries
    from ikebana.sql import SourceTable

    relations = {}
    for name in TABLES:
        table = session.table(name)
        relations[name] = SourceTable(name, table, tuple(table.key), table.kind == "stream")
    queries = Queries(session.spark, session.engine, "", lambda: relations)
    times: dict[int, Times] = {number: {} for number in chosen}
    queries.lower("SELECT r_name FROM region")  # so that all tables are known
    for metric in ("prepare_ms", "cached_ms"):
        for number in progress.track("preparing", chosen):
            watch = Stopwatch()
            queries.lower(query(number))
            times[number][metric] = watch.seconds * 1e3
    for number in chosen:
        session.explain(query(number))
    return times


def installed(session: Session, number: int, name: str = "") -> tuple[View, pa.Table, Times]:
    """A view of one of the 22, its first answer, and what both took."""
    watch = Stopwatch()
    view = session.view(name or f"q{number}", query(number))
    install = watch.seconds
    answer = view.to_arrow()
    return view, answer, {"install_ms": install * 1e3, "answer_ms": watch.seconds * 1e3, "rows": len(answer)}


def own_bytes(session: Session, name: str) -> int:
    """What a view has arranged on the way to its result; nothing if another has the same result."""
    return sum(arrangement.inner_bytes for arrangement in session.arrangements() if arrangement.name == (name,))


_NEXT_TO_NOTHING = 1 << 14
"""Bytes of what a query may arrange for itself over no line items: constants, sums of nothing."""


def indexes(session: Session) -> Counter[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The number of arrangements of base tables for each key, over all workers; streams have none."""
    kept = {name for name in TABLES if session.table(name).kind != "stream"}
    shown = session.arrangements()
    return Counter((arrangement.name, arrangement.key) for arrangement in shown if kept.issuperset(arrangement.name))


def memory(when: str, session: Session) -> dict[str, float]:
    """What the workers hold; of arrangements, those that can be shared."""
    return {f"{when}_resident_bytes": resident(session), f"{when}_held_bytes": session.status().bytes}


def summarised(results: Mapping[int, Times], parameters: InstallParameters) -> Iterator[tuple[str, Any]]:
    """Over all queries of a kind: medians and maxima, and how they compare with what is aimed at."""
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
