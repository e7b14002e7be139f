"""`lookups`: reading by key, and prepared statements that are opened, read and closed, on Spark.

A table of orders, a view with a sum for each customer, and two prepared statements: one selects the orders of a
customer, the other counts and sums them. Measured from the driver:

- *look-up*: `view.lookup` of one key, by one thread and by many, and directly after a change of the table;
- *selection*: `read` of the statement that selects rows by key, which is a look-up as well;
- *answer*: `read` of the statement that aggregates, for values that were never read before (each has to be opened; the
  threads are served together) and for values that are still open;
- *opening*: many results of that statement, one by one and at once, until the last of them has been read;
- *change*: a change of one order while all these results are open and followed, until its result has changed.

Not measured: starting Spark, loading the table, the first look-up. The paper has no such experiment; its interactive
queries (section 6.1) are opened by changes of an input, as bindings are here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ikebana_bench.ingest import connected
from ikebana_bench.measure import Stopwatch, compiled_shares, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

if TYPE_CHECKING:
    from ikebana.spark import Session
    from ikebana.spark.table import Table
    from ikebana.sql.statements import Statement

WARM = 20
"""Number of calls before the measurement starts."""


@dataclass(frozen=True)
class LookupParameters(Parameters):
    rows: int = parameter(100_000, "orders", minimum=100)
    customers: int = parameter(5_000, "customers", minimum=10)
    lookups: int = parameter(2_000, "look-ups of one thread, and of all threads together", minimum=1)
    threads: int = parameter(50, "threads that read at once", minimum=1)
    results: int = parameter(1_000, "results of the statement that are open at once", minimum=1)
    changes: int = parameter(100, "measured changes", minimum=1)
    workers: int = parameter(2, "number of workers", minimum=1)


class Lookups(Scenario[LookupParameters]):
    """Read by key, and open, read and follow results of prepared statements."""

    name = "lookups"
    claim = "Reading by key takes one round trip to the worker that owns the key, and many readers are served together."
    paper = "§6.1 (interactive queries)"
    parameters = LookupParameters

    def run(self, parameters: LookupParameters, progress: Progress) -> Results:
        with connected(parameters.workers) as session:
            self._p = parameters
            ids = np.arange(parameters.rows)
            self._customers, self._prices = ids % parameters.customers, ids * 7 % 1_000
            orders = session.create_table(
                "orders", "id BIGINT, customer BIGINT NOT NULL, price BIGINT NOT NULL", key="id"
            )
            orders.insert({"id": ids, "customer": self._customers, "price": self._prices})
            steps = (self._look_up, self._select, self._answer, self._open)
            results: dict[str, float] = {}
            for step in progress.track("measuring", steps):
                results |= step(session, orders)
            return results | compiled_shares(session.engine)

    def _orders_of(self, customer: int) -> np.ndarray:
        """The orders of a customer."""
        return np.flatnonzero(self._customers == customer)

    def _sum(self, customer: int) -> int:
        return int(self._prices[self._orders_of(customer)].sum())

    def _set_price(self, orders: Table, order: int, price: int) -> None:
        self._prices[order] = price
        orders.upsert({"id": [order], "customer": [int(self._customers[order])], "price": [price]})

    def _look_up(self, session: Session, orders: Table) -> dict[str, float]:
        view = session.view("sums", orders.sum("customer", "price"))

        def look_up(customer: int) -> Any:
            return view.lookup(customer=customer)["sum"].to_pylist()

        def change_and_look_up(at: int) -> Any:
            self._set_price(orders, at, 5_000 + at)
            watch = Stopwatch()
            rows = look_up(at % self._p.customers)
            self.verify(rows == [self._sum(at % self._p.customers)], "a look-up sees the change before it")
            return watch.seconds * 1e3

        results = self._reads("lookup", look_up, lambda customer: [self._sum(customer)])
        results |= percentiles("lookup_after_change", "ms", list(map(change_and_look_up, range(self._p.changes))))
        session.drop_view("sums")
        return results

    def _select(self, session: Session, orders: Table) -> dict[str, float]:
        with session.prepare("SELECT id, price FROM orders WHERE customer = :c", c="BIGINT") as statement:
            self.verify(statement.is_lookup, "the statement selects rows by key")
            return self._reads(
                "selection",
                lambda customer: sorted(statement.read(c=customer)["id"].to_pylist()),
                lambda customer: self._orders_of(customer).tolist(),
            )

    def _reads(self, name: str, read: Callable[[int], Any], expected: Callable[[int], Any]) -> dict[str, float]:
        """The time of a read in one thread, and the reads of many threads in a second."""
        customers = [at % self._p.customers for at in range(self._p.lookups)]
        for customer in customers[:WARM]:
            self.verify(read(customer) == expected(customer), f"a {name} is right", detail=f"customer {customer}")
        spent = [_milliseconds(partial(read, customer)) for customer in customers]
        return {
            **percentiles(name, "ms", spent),
            f"{name}s_per_s": self._in_threads(name, read, expected, customers),
        }

    def _in_threads(
        self, name: str, read: Callable[[int], Any], expected: Callable[[int], Any], customers: Sequence[int]
    ) -> float:
        """The reads in a second, if each thread has its own part of the customers."""
        answers: dict[int, Any] = {}

        def work(number: int) -> None:
            for customer in customers[number :: self._p.threads]:
                answers[customer] = read(customer)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(self._p.threads)]
        watch = Stopwatch()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = watch.seconds
        wrong = [customer for customer in set(customers) if answers.get(customer) != expected(customer)]
        self.verify(not wrong, f"every {name} of {self._p.threads} threads is right", detail=str(wrong[:5]))
        return len(customers) / seconds

    def _totals(self, session: Session, **options: Any) -> Statement:
        text = "SELECT count(*) AS n, sum(price) AS total FROM orders WHERE customer = :c"
        return session.prepare(text, c="BIGINT", **options)

    def _answer(self, session: Session, orders: Table) -> dict[str, float]:
        with self._totals(session) as statement:

            def read(customer: int) -> Any:
                return statement.read(c=customer)["total"].to_pylist()

            def expected(customer: int) -> Any:
                return [self._sum(customer)]

            read(self._p.customers - 1)
            new = [_milliseconds(partial(read, customer)) for customer in range(WARM, 2 * WARM)]
            again = [_milliseconds(partial(read, WARM)) for _ in range(self._p.changes)]
            others = range(2 * WARM, min(self._p.customers - 1, 2 * WARM + 20 * self._p.threads))
            return {
                **percentiles("answer_new", "ms", new),
                **percentiles("answer_open", "ms", again),
                "answers_new_per_s": self._in_threads("answer", read, expected, others),
            }

    def _open(self, session: Session, orders: Table) -> dict[str, float]:
        customers = [at % self._p.customers for at in range(self._p.results)]
        results = {}
        for name in ("one_by_one", "at_once"):
            with self._totals(session) as statement:
                statement.open(c=0).close()
                watch = Stopwatch()
                if name == "one_by_one":
                    opened = [statement.open(c=customer) for customer in customers]
                else:
                    opened = statement.open_many({"c": customer} for customer in customers)
                total = opened[-1].to_arrow()["total"].to_pylist()
                results[f"open_{name}_s"] = watch.seconds
                self.verify(total == [self._sum(customers[-1])], "the last of the opened results is right")
                if name == "at_once":
                    results |= self._change(orders, opened)
        return results

    def _change(self, orders: Table, opened: Sequence[Any]) -> dict[str, float]:
        """The time from a change of an order until the result of its customer has changed, among all open results."""
        followed = [result.changes("now") for result in opened]
        spent = []
        for at in range(WARM + self._p.changes):
            number = at % len(opened)
            order = int(self._orders_of(number)[-1])
            watch = Stopwatch()
            self._set_price(orders, order, 10_000 + at)
            _, changes = next(followed[number])
            spent.append(watch.seconds * 1e3)
            new = changes.filter(changes["diff"].to_numpy() > 0)["total"].to_pylist()
            self.verify(new == [self._sum(number)], "a change of an order changes the result of its customer")
        return percentiles("change_with_all_open", "ms", spent[WARM:])


def _milliseconds(work: Callable[[], Any]) -> float:
    watch = Stopwatch()
    work()
    return watch.seconds * 1e3
