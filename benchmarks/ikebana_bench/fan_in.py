"""`fan-in`: what one changed row costs where many inputs of one join change with it.

Three queries, each of growing width n over one small table: n scalar subqueries, n self joins by key, and the same
joins of a row updated many times before. Every input of the join changes in the same epoch, and a lookup meets the
row as it was, its retraction and the row as it is. The cost of a change should follow the operators, of which a delta
join of n inputs has n squared, and not the ways to combine versions, of which there are exponentially many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ikebana_bench.measure import Stopwatch
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

if TYPE_CHECKING:
    from ikebana.spark import Session

WIDTHS = (2, 4, 8, 12, 16, 20, 24, 30)
ROWS = 40
HOT = 3
"""The key of the row that changes."""


@dataclass(frozen=True)
class FanInParameters(Parameters):
    widest: int = parameter(30, "inputs of the widest join", minimum=4)
    updates: int = parameter(1_000, "updates of the hot row before it is measured", minimum=1)
    changes: int = parameter(5, "changes measured of each query; the median counts", minimum=1)
    workers: int = parameter(1, "workers", minimum=1)


def subqueries(width: int) -> str:
    """A query with so many scalar subqueries over one table."""
    columns = [f"(SELECT sum(v * {at}L) FROM t) AS c{at}" for at in range(1, width + 1)]
    return f"SELECT k, {', '.join(columns)} FROM t WHERE k = {HOT}"


def self_joins(width: int) -> str:
    """A query that joins a table with itself by key, so many times in all."""
    columns = [f"t{at}.v + {at}L AS c{at}" for at in range(1, width + 1)]
    joined = "".join(f" JOIN t t{at} ON t{at}.k = t1.k" for at in range(2, width + 1))
    return f"SELECT t1.k, {', '.join(columns)} FROM t t1{joined}"


class FanIn(Scenario[FanInParameters]):
    """One changed row under ever wider joins."""

    name = "fan-in"
    claim = "A change of all inputs of a join of n costs no more than n squared, also of a row with a long history."
    paper = "none: a delta join's cost in the number of inputs that change at once"
    parameters = FanInParameters

    def run(self, parameters: FanInParameters, progress: Progress) -> Results:
        from ikebana.spark import connect  # here, since the other benchmarks need no PySpark, which takes a while

        widths = [width for width in WIDTHS if width < parameters.widest] + [parameters.widest]
        results: dict[str, float] = {}
        with connect(workers=parameters.workers) as session:
            table = session.create_table("t", "k BIGINT NOT NULL, v BIGINT NOT NULL", key="k")
            table.insert({"k": list(range(ROWS)), "v": list(range(ROWS))})
            for width in progress.track("widths", widths):
                results[f"subqueries_{width}_ms"] = self._change(session, parameters, subqueries(width), "total", width)
                results[f"self_joins_{width}_ms"] = self._change(session, parameters, self_joins(width), "row", width)
            for at in progress.track("updates of the hot row", range(parameters.updates)):
                table.upsert({"k": [HOT], "v": [at]})
            for width in progress.track("widths, hot row", widths):
                results[f"hot_row_{width}_ms"] = self._change(session, parameters, self_joins(width), "row", width)
        return {**results, **_growth(results, widths)}

    def _change(self, session: Session, parameters: FanInParameters, text: str, what: str, width: int) -> float:
        """Milliseconds from a change of the hot row until a query has its answer, at the median."""
        table, view = session.table("t"), session.view(f"wide {what} {width}", text)
        spent = []
        for at in range(parameters.changes):
            value = 1_000 + at
            view.to_arrow()
            watch = Stopwatch()
            table.upsert({"k": [HOT], "v": [value]})
            answer = view.to_arrow()
            spent.append(watch.seconds * 1e3)
            rows = [row for row in answer.to_pylist() if row["k"] == HOT]
            total = sum(range(ROWS)) - HOT + value
            expected = {f"c{n}": n * total if what == "total" else n + value for n in range(1, width + 1)}
            self.verify(rows == [{"k": HOT, **expected}], f"{width} inputs give the row that was computed by hand")
        view.drop()
        return float(np.median(spent))


def _growth(results: dict[str, float], widths: list[int]) -> dict[str, float]:
    """For each query, the exponent of the growth from half the greatest width to the greatest: 2 is quadratic."""
    wide = widths[-1]
    half = max(width for width in widths if width <= max(wide / 2, widths[0]))
    kinds = ("subqueries", "self_joins", "hot_row")
    slope = 1 / np.log(wide / half)
    return {
        f"{kind}_growth_exponent_ratio": float(
            np.log(results[f"{kind}_{wide}_ms"] / results[f"{kind}_{half}_ms"]) * slope
        )
        for kind in kinds
    }
