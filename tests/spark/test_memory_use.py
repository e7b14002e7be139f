"""What tables and views cost. No Spark is needed for this: the catalogue and the sizes are the engine's."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.spark.listing import Listing
from ikebana.spark.memory_use import MemoryInfo, memory_infos


def by_name(engine: Engine) -> dict[str, MemoryInfo]:
    return {info.name: info for info in memory_infos(engine.catalog, engine.status())}


def total_bytes(engine: Engine) -> int:
    return sum(status.bytes + status.inner_bytes for status in engine.status())


def shop(workers: int = 1) -> Engine:
    engine = Engine(workers)
    orders = engine.table("orders", {"id": pa.int64(), "region": pa.string(), "total": pa.int64()}, "id")
    orders.insert({"id": range(300), "region": ["n", "e", "s"] * 100, "total": range(300)})
    return engine


def test_own_and_shared() -> None:
    with shop() as engine:
        orders = engine.tables["orders"]
        engine.install("by region", orders.arrange("region"))
        engine.install("largest", orders.arrange("region").join(orders.select("region", other="id").arrange("region")))
        engine.install("copy", orders.filter(lambda c: pc.greater(c["total"], 10)))
        engine.run()
        infos = by_name(engine)
        assert infos["orders"].own > 0 and infos["orders"].shared == 0 and infos["orders"].freed_by_drop == 0
        assert infos["by region"].own > 0 and infos["by region"].freed_by_drop == 0  # its index stays for the other
        assert (
            infos["largest"].shared_with == ("by region", "orders")
            and infos["largest"].freed_by_drop == infos["largest"].own
        )
        assert "orders" in infos["copy"].shared_with
        assert [info.own for info in infos.values()] == sorted((info.own for info in infos.values()), reverse=True)
        shown = repr(Listing(infos.values(), MemoryInfo)).splitlines()
        assert shown[0].split("   ")[0] == "name" and len(shown) == 5 and "kB" in shown[1]


@given(st.permutations(range(5)), st.integers(1, 5), st.integers(1, 2))
def test_oracle_dropping_frees_what_is_said(order: list[int], count: int, workers: int) -> None:
    with shop(workers) as engine:
        orders = engine.tables["orders"]
        plans = [
            orders.arrange("region"),
            orders.arrange("region").join(orders.select("region", other="id").arrange("region")),
            orders.count("region"),
            orders.sum("region", "total"),
            orders.arrange("total"),
        ]
        views = {f"view {number}": engine.install(f"view {number}", plans[number]) for number in order[:count]}
        engine.run()
        for name, view in views.items():
            freed, before = by_name(engine)[name].freed_by_drop, total_bytes(engine)
            view.drop()
            assert before - total_bytes(engine) == freed
        assert {info.name for info in by_name(engine).values()} == {"orders"}
