"""A query that comes late attaches to an existing index, and answers at once. Takes a few seconds.

Two engines have the same edges and the same first query, which has the edges indexed by their source. In one of them
queries share indexes; in the other each query builds its own. Then further queries arrive: the table shows how long
each takes from being installed to its complete answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ikebana import graph
from ikebana.engine import Engine, Input
from ikebana.engine.collection import Collection

NODES, EDGES = 200_000, 1_000_000
Query = Callable[[Collection, Collection], Collection]

console = Console()


def one_hop(edges: Collection, people: Collection) -> Collection:
    """The acquaintances of some people."""
    return people.arrange("node").join(edges.arrange("src")).select("node", acquaintance="dst")


def two_hops(edges: Collection, people: Collection) -> Collection:
    """The acquaintances of their acquaintances."""
    known = one_hop(edges, people).arrange("acquaintance").join(edges.arrange("src"))
    return known.select("node", acquaintance="dst").distinct()


QUERIES: dict[str, Query] = {"one hop": one_hop, "two hops": two_hops, "one hop, again": one_hop}


def start(share: bool) -> tuple[Engine, Input]:
    """An engine with many edges, and a first query, which needs them indexed by source."""
    engine = Engine(share=share)
    edges = engine.input("knows", {"src": pa.int32(), "dst": pa.int32()})
    first = engine.input("first", {"node": pa.int32()})
    random = np.random.default_rng(2020)
    edges.insert({name: random.integers(0, NODES, EDGES, np.int32) for name in ("src", "dst")})
    first.insert({"node": [0]})
    engine.install("first query", graph.reach(edges, first))
    engine.advance()
    engine.run()
    return engine, edges


def ask(engine: Engine, edges: Input, name: str, query: Query) -> tuple[float, int]:
    """Install a query about three people; returns the seconds until its answer, and the number of rows."""
    people = engine.input(f"people of {name}", {"node": pa.int32()})
    people.insert({"node": [1, 2, 3]})
    engine.advance()
    begin = time.perf_counter()
    rows = engine.install(name, query(edges, people)).read().num_rows
    return time.perf_counter() - begin, rows


def main() -> None:
    console.print(f"{EDGES:,} edges, and a first query that follows them by source ...")
    sharing, separate = start(share=True), start(share=False)
    table = Table(title="From install to answer", title_justify="left")
    for name in ("late query", "rows", "shared", "not shared", "times faster"):
        table.add_column(name, justify="left" if name == "late query" else "right")
    for name, query in QUERIES.items():
        quick, rows = ask(*sharing, name, query)
        slow, same = ask(*separate, name, query)
        assert rows == same, "both engines must give the same answer"
        table.add_row(name, str(rows), f"{quick * 1e3:,.1f} ms", f"{slow * 1e3:,.1f} ms", f"{slow / quick:,.0f}")
    console.print(table)
    engine, edges = sharing
    people = engine.input("people", {"node": pa.int32()})
    console.print("\nThe plan of such a query, and the index that it reuses:")
    console.print(engine.explain(one_hop(edges, people)), highlight=False)


if __name__ == "__main__":
    main()
