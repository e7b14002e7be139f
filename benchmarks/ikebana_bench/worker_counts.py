"""`worker-counts`: what each of 1, 2, 4 and 8 workers does for the same changes, in counts and not in times.

Workers run in this process, one after the other, so times would say nothing; counts do not depend on the machine. For
each number of workers, and for the worker that has most:

    messages   messages to other workers, for one change
    bytes      bytes of these messages, as they would be sent
    rows       rows of all arrangements that the worker holds

Measured are a small change (one row under ten views of a join), a round (100 rows of each of two tables under the same
views), a load (all rows, from scratch) and a loop (transitive closure of a grid, from scratch). By design the messages
of a small change depend neither on the number of views nor on the workers that have no rows for it, beyond one proposal
to each peer; bytes and rows of large changes fall with the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.cluster import codec
from ikebana.cluster.inprocess import InProcess
from ikebana.engine import Engine, Table
from ikebana_bench.datalog import evaluate, grid, loaded, pairs
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

WORKERS = (1, 2, 4, 8)


class CountingCluster(InProcess):
    """Workers in this process whose messages are counted."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.messages, self.bytes = np.zeros(workers, np.int64), np.zeros(workers, np.int64)

    def _send(self, index: int) -> None:
        for _, message in self.workers[index].outbox:
            self.messages[index] += 1
            self.bytes[index] += sum(memoryview(frame).nbytes for frame in codec.encode(message))
        super()._send(index)

    def counted(self, change: Callable[[], None]) -> dict[str, int]:
        """The most messages and bytes that a worker sends because of a change."""
        self.messages[:] = self.bytes[:] = 0
        change()
        return {"messages": int(self.messages.max()), "sent_bytes": int(self.bytes.max())}

    def rows(self) -> int:
        """The most rows that a worker holds in arrangements that can be imported."""
        return max(
            sum(len(batch) for flow in worker.flows.values() for batch in flow.batches()) for worker in self.workers
        )


@dataclass(frozen=True)
class CountsParameters(Parameters):
    rows: int = parameter(20_000, "rows of the larger table", minimum=1_000)
    views: int = parameter(10, "views over the join of the two tables", minimum=1)
    side: int = parameter(15, "side of the grid whose closure is computed", minimum=1)


class WorkerCounts(Scenario[CountsParameters]):
    """Count messages, bytes and rows of each worker."""

    name = "worker-counts"
    claim = "With more workers, each has less to do; a small change concerns few of them."
    paper = "§6.2 (scaling)"
    parameters = CountsParameters

    def run(self, parameters: CountsParameters, progress: Progress) -> Results:
        results: dict[str, Any] = {}
        for workers in progress.track("counting", WORKERS):
            counts = self._tables(workers, parameters) | self._loop(workers, parameters)
            results |= {f"workers_{workers}_{name}": value for name, value in counts.items()}
        return results

    def _tables(self, workers: int, parameters: CountsParameters) -> dict[str, int]:
        cluster = CountingCluster(workers)
        with Engine(cluster=cluster) as engine:
            orders = engine.table("orders", {"id": pa.int64(), "who": pa.int64()}, key="id")
            people = engine.table("people", {"who": pa.int64(), "city": pa.int64()}, key="who")
            number = parameters.rows // 10
            results = named("load", cluster.counted(lambda: self._load(engine, orders, people, parameters)))
            results["load_rows"] = cluster.rows()

            def change(rows: int, first: int) -> None:
                ids = np.arange(first, first + rows)
                with engine.transaction():
                    orders.insert({"id": ids, "who": ids % number})
                    if rows > 1:
                        people.upsert({"who": ids % number, "city": ids % 50})
                engine.wait()

            first = parameters.rows
            for rows, name in ((1, "change"), (100, "round")):
                for _ in range(3):  # the first small sweeps start programs
                    change(rows, first)
                    first += rows
                results |= named(name, cluster.counted(lambda rows=rows, first=first: change(rows, first)))  # type: ignore[misc]
                first += rows
            totals = [
                sum(engine.views[f"view {at}"].to_arrow()[f"n{at}"].to_pylist()) for at in range(parameters.views)
            ]
            self.verify(totals == [first] * parameters.views, "every view counts all orders", detail=str(totals))
        return results

    def _load(self, engine: Engine, orders: Table, people: Table, parameters: CountsParameters) -> None:
        ids, number = np.arange(parameters.rows), parameters.rows // 10
        people.insert({"who": np.arange(number), "city": np.arange(number) % 50})
        orders.insert({"id": ids, "who": ids % number})
        joined = orders.join(people, on="who")
        for at in range(parameters.views):
            count = joined.count("city").select("city", **{f"n{at}": "count"})
            engine.install(f"view {at}", count.arrange("city").rows())
        engine.wait()

    def _loop(self, workers: int, parameters: CountsParameters) -> dict[str, int]:
        cluster, edges = CountingCluster(workers), grid(parameters.side)
        with Engine(cluster=cluster) as engine:
            program = loaded(engine, edges)
            results = named("loop", cluster.counted(lambda: evaluate(program, "tc")))
            count = program.relation("tc").view.to_arrow().num_rows
            expected = pairs("tc", f"grid-{parameters.side}", edges)
            self.verify(count == expected, f"the closure has {expected} pairs", detail=str(count))
            return results | {"loop_rows": cluster.rows()}


def named(prefix: str, counts: dict[str, int]) -> dict[str, int]:
    """Counts with a prefix before their names."""
    return {f"{prefix}_{name}": value for name, value in counts.items()}
