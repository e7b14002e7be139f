"""Tables with lists, structs and maps: their rows come, change and go by value, wherever workers are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table
from ikebana.errors import ChangeError, SchemaError
from tests.clusters import SOON
from tests.dataflow.harness import collected, engine_of, examples, frozen, setups
from tests.trace.nested import NESTED, same, values

pytestmark = pytest.mark.usefixtures("forked_workers")

TAGS = pa.field("tags", pa.list_(pa.string()))
PLACE = pa.field("place", pa.struct([pa.field("x", pa.float64()), pa.field("names", pa.map_(pa.string(), pa.int64()))]))
ID = pa.field("id", pa.int64(), nullable=False)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "tags": ["a", None], "place": {"x": 0.0, "names": [("m", 1), ("n", None)]}},
    {"id": 2, "tags": [], "place": {"x": None, "names": []}},
    {"id": 3, "tags": None, "place": None},
]


@pytest.fixture(scope="module", params=["one worker", "two workers", "processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    cluster = Processes(2) if request.param == "processes" else None
    with Engine(2 if request.param == "two workers" else 1, cluster=cluster) as engine:
        yield engine


@pytest.fixture(params=["keyed", "bag"])
def table(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Table]:
    yield engine.table("t", [TAGS, ID, PLACE], key="id" if request.param == "keyed" else None)
    for view in list(engine.views.values()):
        view.drop()
    engine.drop_table("t")


def columns(rows: list[dict[str, Any]], *fields: pa.Field) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(fields or [TAGS, ID, PLACE]))


def in_order(rows: Any) -> list[Any]:
    return sorted((frozen(dict(sorted(row.items()))) for row in rows), key=repr)


def test_rows_come_and_go(engine: Engine, table: Table) -> None:
    everything = engine.install("everything", table)
    table.insert(columns(ROWS))
    assert in_order(everything.to_arrow().to_pylist()) == in_order(ROWS)
    assert everything.to_arrow().schema.field("place").type == PLACE.type
    turned = {**ROWS[0], "place": {"x": -0.0, "names": [("n", None), ("m", 1)]}}
    table.delete(columns([turned, ROWS[2]]))
    assert in_order(everything.to_arrow().to_pylist()) == in_order(ROWS[1:2])
    with pytest.raises(ChangeError, match="id=1"):
        table.delete(columns(ROWS[:1]))
    changes = everything.changes(timeout=SOON)
    assert in_order(next(changes)[1].drop_columns(["diff"]).to_pylist()) == in_order(ROWS[1:2])
    assert changes.take(timeout=0) is None


def test_views_of_nested_columns(engine: Engine, table: Table) -> None:
    tags = engine.install("tags", table.select("tags").distinct())
    by_place = engine.install("by place", table.count("place"))
    met = engine.install("met", table.join(table.select("tags", other="id"), on="tags").select("id", "other"))
    table.insert(columns([*ROWS, {**ROWS[0], "id": 4}]))
    assert in_order(tags.to_arrow().to_pylist()) == in_order({"tags": row["tags"]} for row in ROWS)
    counts = {frozen(row["place"]): row["count"] for row in by_place.to_arrow().to_pylist()}
    assert counts == {frozen(ROWS[0]["place"]): 2, frozen(ROWS[1]["place"]): 1, None: 1}
    assert sorted(collected(met.read())) == [(1, 1), (1, 4), (2, 2), (3, 3), (4, 1), (4, 4)]
    table.delete(columns(ROWS[:1]))
    assert sorted(collected(met.read())) == [(2, 2), (3, 3), (4, 4)]
    assert tags.to_arrow().num_rows == 3


def test_nested_keys(engine: Engine) -> None:
    table = engine.table("keyed", [TAGS.with_nullable(False), pa.field("n", pa.int64())], key="tags")
    table.upsert({"tags": [["a"], [], ["a"]], "n": [1, 2, 3]})
    table.upsert({"tags": [["a"], [None]], "n": [3, 4]})
    rows = collected(engine.install("rows", table).read())
    assert rows == {(("a",), 3): 1, ((), 2): 1, ((None,), 4): 1}
    with pytest.raises(ChangeError, match=r"tags=\['a'\]"):
        table.insert({"tags": [["a"]], "n": [5]})
    engine.views["rows"].drop()
    engine.drop_table("keyed")


def test_nested_columns_have_no_order(engine: Engine, table: Table) -> None:
    with pytest.raises(SchemaError, match=r"cannot order by column 'tags': values of type list<.*> have no order"):
        table.max("id", "tags")
    least = engine.install("some", table.select("tags", "place").min("tags"))  # of each, one, always the same
    table.insert(columns([ROWS[1], {"id": 7, "tags": [], "place": None}]))
    assert least.to_arrow().num_rows == 1


@examples(0.3)
@given(setups(3), NESTED, st.data())
def test_any_nested_column_cancels_by_value(setup: Any, kind: pa.DataType, data: Any) -> None:
    rows = data.draw(st.lists(values(kind), min_size=1, max_size=5))
    gone = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    with engine_of(setup) as engine:
        given_ = engine.input("given", [pa.field("x", kind), pa.field("n", pa.int64())])
        view = engine.install("rows", given_.distinct())
        given_.insert({"x": pa.array(rows, kind), "n": [1] * len(rows)})
        engine.advance()
        view.read()
        given_.remove({"x": pa.array([rows[at] for at in gone], kind), "n": [1] * len(gone)})
        engine.advance()
        left = {same(row, kind) for at, row in enumerate(rows) if at not in gone}
        remaining = [same(row, kind) for row in view.to_arrow()["x"].to_pylist()]
        assert sorted(map(repr, remaining)) == sorted(map(repr, left))


# Fields of structs.

ADDRESS = pa.struct([pa.field("street", pa.string()), pa.field("zip", pa.int64())])
HOUSES = [
    pa.field("id", pa.int64()),
    pa.field("address", ADDRESS),
    pa.field("deep", pa.struct([pa.field("address", ADDRESS)])),
    pa.field("others", pa.list_(ADDRESS)),
    pa.field("by_name", pa.map_(pa.string(), ADDRESS)),
]
WHOLE = {"street": "s", "zip": 1}
SHORT, LONG = {"street": "s"}, {"street": "s", "zip": 1, "door": 2}
STRAYS: dict[str, tuple[str, Any, str]] = {
    "missing": ("address", SHORT, "missing: 'address.zip'"),
    "unknown": ("address", LONG, "unknown: 'address.door'"),
    "both": ("address", {"street": "s", "zap": 1}, "missing: 'address.zip'; unknown: 'address.zap'"),
    "nested": ("deep", {"address": SHORT}, "missing: 'deep.address.zip'"),
    "in a list": ("others", [WHOLE, LONG], "unknown: 'others.element.door'"),
    "in a map": ("by_name", {"home": WHOLE, "work": SHORT}, "missing: 'by_name.value.zip'"),
}


def house(**others: Any) -> dict[str, Any]:
    usual = {"id": 1, "address": WHOLE, "deep": {"address": WHOLE}, "others": [], "by_name": {}}
    return {name: [value] for name, value in {**usual, **others}.items()}


def as_arrow(row: dict[str, Any]) -> pa.Table:
    """The same as Arrow infers it: maps are not inferred."""
    maps = pa.array([list(row.pop("by_name")[0].items())], pa.map_(pa.string(), ADDRESS))
    return pa.table(row).append_column("by_name", maps)


def as_objects(row: dict[str, Any]) -> dict[str, Any]:
    return {name: np.fromiter(values, object, 1) for name, values in row.items()}


@pytest.mark.parametrize("form", [dict, as_arrow, as_objects])
@pytest.mark.parametrize("what", STRAYS)
def test_regression_fields_of_structs_are_those_of_the_table(what: str, form: Any) -> None:
    column, value, detail = STRAYS[what]
    if form is as_arrow and column == "by_name":
        return  # Arrow's column of maps has its type, and so their fields
    row = house(**{column: value})
    row["id"] = pa.array(row["id"])
    with Engine() as engine:
        houses = engine.table("houses", HOUSES, key="id")
        for change in (houses.insert, houses.upsert):
            with pytest.raises(SchemaError, match=f"'houses': the fields of column {column!r} do not fit") as refused:
                change(form(dict(row)))
            assert refused.value.detail == detail
        houses.insert(house(address=None, others=[WHOLE, None], by_name={"home": WHOLE}))
        assert engine.epoch == 1
