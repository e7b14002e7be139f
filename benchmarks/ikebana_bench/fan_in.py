"""`fan-in`: the cost of changing one row when many inputs of a join change with it.

Three kinds of queries over one small table, with n inputs each: n scalar subqueries, n self joins by key, and the same
self joins after the row was updated many times. All inputs of the join change in the same epoch, so every lookup finds
the old row, its retraction and the new row. The cost of a change should be proportional to the number of operators,
which is n squared for a delta join of n inputs, and not to the number of combinations of row versions, which is
exponential in n.

Measured is the time from changing the row to the query's answer; installing the queries is not measured. The paper has
no such experiment.
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
    updates: int = parameter(1_000, "updates of the row before the last kind of query is measured", minimum=1)
    changes: int = parameter(5, "measured changes per query; the median counts", minimum=1)
    workers: int = parameter(1, "workers", minimum=1)


def subqueries(width: int) -> str:
    """Return a query with `width` scalar subqueries over one table."""
    columns = [f"(SELECT sum(v * {at}L) FROM t) AS c{at}" for at in range(1, width + 1)]
    return f"SELECT k, {', '.join(columns)} FROM t WHERE k = {HOT}"


def self_joins(width: int) -> str:
    """Return a query that joins `width` instances of one table by key."""
    columns = [f"t{at}.v + {at}L AS c{at}" for at in range(1, width + 1)]
    joined = "".join(f" JOIN t t{at} ON t{at}.k = t1.k" for at in range(2, width + 1))
    return f"SELECT t1.k, {', '.join(columns)} FROM t t1{joined}"


class FanIn(Scenario[FanInParameters]):
    """Change one row below joins with more and more inputs."""

    name = "fan-in"
    claim = "Changing all n inputs of a join costs at most n squared, even for a row with a long history."
    paper = "none: the cost of a delta join by the number of inputs that change at once"
    parameters = FanInParameters

    def run(self, parameters: FanInParameters, progress: Progress) -> Results:
        from ikebana.spark import (
            connect,
        )  # imported late: PySpark is slow to import, and other benchmarks do not need it

        widths = [width for width in WIDTHS if width < parameters.widest] + [parameters.widest]
        results: dict[str, float] = {}
        with connect(workers=parameters.workers, temp_views=False) as session:
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
        """Return the median of the milliseconds from a change of the hot row to the query's answer."""
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
            self.verify(rows == [{"k": HOT, **expected}], f"the row is correct with {width} inputs")
        view.drop()
        return float(np.median(spent))


def _growth(results: dict[str, float], widths: list[int]) -> dict[str, float]:
    """Return the growth exponent of each kind of query, from half the largest width to the largest; 2 is quadratic."""
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
