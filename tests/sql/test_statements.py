"""Prepared statements without Java: each binding has the result for its values, independent of others.

Answers are compared with Spark's (`tests.sql.record_plans`), and on the way to the rows that Spark answered over with
those of an engine that has seen nothing else.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ikebana.engine.prepared import Binding
from ikebana.errors import ChangeError, DataflowError, DroppedError, IkebanaError, SchemaError, SqlError
from ikebana.sql.statements import Statement
from tests.sql.rows import Rows, rows
from tests.sql.statement_tables import StatementTables, difference, wandering
from tests.sql.statements import PREPARED, STATEMENTS, VALUES, answers, planned


@functools.cache
def spark_answers(over: str = "rows") -> dict[str, list[pa.Table]]:
    return answers(over)


def wrong(bindings: dict[str, Binding], wanted: dict[str, pa.Table]) -> list[str]:
    return [
        f"{name}: {text}"
        for name, binding in bindings.items()
        if (text := difference(binding.to_arrow(), wanted[name]))
    ]


@functools.cache
def history() -> list[tuple[Rows, list[dict[str, pa.Table]]]]:
    """Rows step by step, and what is right after each for both sets of values: after the last step, Spark's answers."""
    *steps, last = wandering(rows(), 3, seed=8)
    right = [{name: spark_answers()[name][which] for name in PREPARED} for which in (0, 1)]
    return [*((state, fresh_answers(state)) for state in steps), (last, right)]


def fresh_answers(state: Rows) -> list[dict[str, pa.Table]]:
    with StatementTables(1, state, share=False) as world:
        statements = {name: world.statement(name) for name in PREPARED}
        return [
            {name: statement.open(**VALUES[name][which]).to_arrow() for name, statement in statements.items()}
            for which in (0, 1)
        ]


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_oracle_two_bindings_at_once_and_then_no_rows(workers: int) -> None:
    with StatementTables(workers, rows()) as world:
        statements = {name: world.statement(name) for name in PREPARED}
        opened = []
        for which in (0, 1):
            opened.append({name: statement.open(**VALUES[name][which]) for name, statement in statements.items()})
            assert not wrong(opened[which], {name: spark_answers()[name][which] for name in PREPARED})
        for name, statement in statements.items():
            both = [binding.to_arrow() for binding in statement.bindings.values()]
            assert [difference(*pair) for pair in zip(both, spark_answers()[name], strict=True)] == ["", ""], name
        world.change_to({name: [] for name in rows()})
        for which in (0, 1):
            assert not wrong(opened[which], {name: spark_answers("nothing")[name][which] for name in PREPARED})


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_bindings_come_and_go_while_rows_change(workers: int) -> None:
    (start, _), *_ = history()
    with StatementTables(workers, start) as world:
        statements = {name: world.statement(name) for name in PREPARED}
        before = {name: statement.open(**VALUES[name][0]) for name, statement in statements.items()}
        for number, (state, right) in enumerate(history()):
            old, new = number % 2, (number + 1) % 2
            world.change_to(state)
            after = {name: statement.open(**VALUES[name][new]) for name, statement in statements.items()}
            assert not wrong(before, right[old]), f"after step {number}"
            assert not wrong(after, right[new]), f"after step {number}"
            for binding in before.values():
                binding.close()
            before = after


# Bindings.


@pytest.fixture(params=[1, 2])
def world(request: pytest.FixtureRequest) -> Iterator[StatementTables]:
    with StatementTables(request.param, rows()) as world:
        yield world


@pytest.fixture
def by_key(world: StatementTables) -> Statement:
    return world.statement("by_key")


def ids(binding: Binding) -> list[int]:
    return sorted(binding.to_arrow()["id"].to_pylist())


def order(world: StatementTables, **values: Any) -> dict[str, list[Any]]:
    """A row of orders, with some values of its own."""
    return {name: [value] for name, value in (world.rows["orders"][0] | values).items()}


def test_bindings_are_independent(world: StatementTables, by_key: Statement) -> None:
    one, two, same = by_key.open(id=7), by_key.open(id=12), by_key.open(id=7)
    assert (ids(one), ids(two), ids(same)) == ([7], [12], [7])
    assert (repr(by_key), repr(two)) == ("<statement by_key: 3 open>", "<by_key(id=12)>")
    one.close()
    one.close()
    assert (ids(two), ids(same)) == ([12], [7])
    world.engine.tables["orders"].delete({"id": [7]})
    assert (ids(two), ids(same)) == ([12], [])
    with by_key.open(id=8) as three:
        assert ids(three) == [8]
    assert list(by_key.bindings.values()) == [two, same]
    with pytest.raises(DroppedError, match="'by_key' was closed"):
        three.to_arrow()
    with pytest.raises(DroppedError, match="'by_key' was closed"):
        one.changes()


def test_an_answer_has_the_columns_of_the_query_in_its_order(world: StatementTables) -> None:
    top = world.statement("by_top")
    assert top.columns == ["id", "price"]
    answer = top.open(status="open").to_arrow()
    assert not difference(answer, spark_answers()["by_top"][0], in_order=True)
    assert top.open(status="open").to_pandas().equals(answer.to_pandas())


def test_parameters_that_nothing_matches(world: StatementTables) -> None:
    total = world.statement("by_total")
    nobody = total.open(customer=-1)
    assert nobody.to_arrow().to_pylist() == [{"n": 0, "total": None, "last": None}]
    world.engine.tables["orders"].insert(order(world, id=1000, customer=-1, price=Decimal(5)))
    assert nobody.to_arrow()["n"].to_pylist() == [1]
    world.engine.tables["orders"].delete({"id": [1000]})
    assert nobody.to_arrow()["n"].to_pylist() == [0]


def test_opening_inside_a_transaction_is_a_transaction_of_its_own(world: StatementTables, by_key: Statement) -> None:
    before = by_key.open(id=1001)
    with world.engine.transaction():
        world.engine.tables["orders"].insert(order(world, id=1001))
        inside, other = by_key.open(id=1001), by_key.open(id=7)
        assert (ids(inside), ids(other)) == ([], [7])
        before.close()
    assert ids(inside) == [1001]
    with pytest.raises(RuntimeError), world.engine.transaction():
        world.engine.tables["orders"].delete({"id": [1001]})
        inside.close()
        again = by_key.open(id=1001)
        raise RuntimeError
    assert ids(again) == [1001]
    assert list(by_key.bindings.values()) == [other, again]


@pytest.mark.parametrize("values", [{}, {"id": 7, "more": 1}, {"ID": 7}])
def test_all_parameters_must_be_given_and_no_others(by_key: Statement, values: dict[str, Any]) -> None:
    with pytest.raises(SqlError, match="its parameters are id"):
        by_key.open(**values)
    assert not by_key.bindings


@pytest.mark.parametrize("value", ["seven", 7.5, None, [7], 2**70])
def test_values_must_be_of_their_types(world: StatementTables, by_key: Statement, value: Any) -> None:
    with pytest.raises((SchemaError, ChangeError)):
        by_key.open(id=value)
    assert not by_key.bindings
    assert ids(by_key.open(id=7)) == [7]


def test_many_are_opened_in_one_epoch(world: StatementTables, by_key: Statement) -> None:
    epoch = world.engine.epoch
    bindings = by_key.open_many({"id": at} for at in range(5, 25))
    assert world.engine.epoch == epoch + 1
    known = {row["id"] for row in world.rows["orders"]}
    assert [ids(binding) for binding in bindings] == [[at] if at in known else [] for at in range(5, 25)]
    assert by_key.open_many([]) == []
    with pytest.raises(SchemaError, match="'by_key' cannot be opened: parameter 'id' is not of type int64"):
        by_key.open_many([{"id": 1}, {"id": "two"}])
    assert list(by_key.bindings.values()) == bindings


# Reading without opening.


def test_oracle_reads_while_rows_change() -> None:
    (start, _), *_ = history()
    with StatementTables(2, start) as world:
        statements = {name: world.statement(name) for name in PREPARED}
        for number, (state, right) in enumerate(history()):
            world.change_to(state)
            for which in (0, 1):
                actual = {name: statement.read(VALUES[name][which]) for name, statement in statements.items()}
                wrong = [f"{name}: {text}" for name in actual if (text := difference(actual[name], right[which][name]))]
                assert not wrong, f"after step {number}"
        assert not any(statement.bindings for statement in statements.values())


def test_statements_that_select_by_key_are_looked_up(world: StatementTables, by_key: Statement) -> None:
    others = [world.statement(name).is_lookup for name in ("by_list", "by_total", "by_top", "by_semijoin")]
    assert by_key.is_lookup and not any(others)
    epoch, dataflows = world.engine.epoch, world.engine.catalog.dataflows()
    assert by_key.read(id=7)["id"].to_pylist() == [7]
    assert by_key.read(id=-7).num_rows == 0
    assert (world.engine.epoch, world.engine.catalog.dataflows()) == (epoch, dataflows)
    world.engine.tables["orders"].delete({"id": [7]})
    assert by_key.read(id=7).num_rows == 0


def test_reads_stay_open_up_to_a_number(world: StatementTables) -> None:
    total = world.statement("by_total", keep=3)
    epoch = world.engine.epoch

    def read(*customers: int) -> int:
        """The number of epochs that reading takes."""
        nonlocal epoch
        before, epoch = world.engine.epoch, world.engine.epoch
        for customer in customers:
            expected = sum(row["customer"] == customer for row in world.rows["orders"])
            assert total.read(customer=customer)["n"].to_pylist() == [expected]
        return world.engine.epoch - before

    assert read(1, 2, 3) == 3
    assert read(3, 1, 2, 1) == 0
    assert read(4) == 1  # closes 3, the least recently used
    assert read(1, 2, 4) == 0
    assert read(3) == 1
    assert len(world.engine.tables["parameters of by_total"].lookup(customer=[1, 2, 3, 4])) == 3
    with total.open(customer=9) as opened:
        assert read(9) == 0
        assert opened in total.bindings.values()
    assert not total.bindings
    assert read(9) == 1
    total.close()
    for use in (lambda: total.read(customer=1), lambda: total.open_many([{"customer": 1}])):
        with pytest.raises(DroppedError, match="'by_total' was closed"):
            use()


def test_reads_that_keep_nothing(world: StatementTables) -> None:
    total = world.statement("by_total", keep=0)
    for _ in range(2):
        assert total.read(customer=-1)["n"].to_pylist() == [0]
    parameters = world.engine.tables["parameters of by_total"]
    assert parameters.lookup(customer=-1).num_rows == 0


@pytest.mark.parametrize("keep", [0, 2, 100])
def test_threads_are_served_together(world: StatementTables, keep: int) -> None:
    total = world.statement("by_total", keep=keep)
    expected = [sum(row["customer"] == customer for row in world.rows["orders"]) for customer in range(12)]
    counts: dict[int, list[int]] = {}
    together, epoch = threading.Barrier(12), world.engine.epoch

    def read(customer: int) -> None:
        together.wait(60)
        counts[customer] = [total.read(customer=customer)["n"][0].as_py() for _ in range(3)]

    threads = [threading.Thread(target=read, args=(customer,), daemon=True) for customer in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert counts == {customer: [count] * 3 for customer, count in enumerate(expected)}
    assert world.engine.epoch - epoch <= (12 if keep == 100 else 72)


def test_an_error_of_one_read_is_not_that_of_others(world: StatementTables) -> None:
    rate = world.statement("by_range")
    good = {"start": date(2024, 1, 1), "rate": Decimal("1.10")}
    with pytest.raises(SqlError, match="its parameters are start, rate"):
        rate.read(start=date(2024, 1, 1))
    with pytest.raises(SchemaError, match="parameter 'rate' is not of type"):
        rate.read({**good, "rate": "much"})
    assert not difference(rate.read(good), spark_answers()["by_range"][0])


# Changes.


def signed(changes: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(changes[name].to_pylist() for name in ("id", "diff")), strict=True))


def test_changes_are_those_of_one_binding(world: StatementTables) -> None:
    listed, orders = world.statement("by_semijoin"), world.engine.tables["orders"]
    customers = {nation: [] for nation in (1, 2)}
    for row in world.rows["customers"]:
        customers.setdefault(row["nation"], []).append(row["id"])
    one, two = listed.open(nation=1), listed.open(nation=2)
    mine, news = one.changes(timeout=0), one.changes("now", timeout=0)
    orders.insert(order(world, id=1001, customer=customers[2][0]))
    epoch = orders.insert(order(world, id=1002, customer=customers[1][0]))
    world.engine.run()
    first, second = mine
    assert first[1].column_names == ["id", "status", "diff"]
    assert signed(first[1]) == [(order_id, 1) for order_id in ids(one) if order_id != 1002]
    assert (second[0], signed(second[1])) == (epoch, [(1002, 1)])
    assert [(at, signed(changes)) for at, changes in news] == [(epoch, [(1002, 1)])]
    assert 1001 in ids(two)


def test_invariance_changes_of_many_bindings_are_those_that_reading_shows(world: StatementTables) -> None:
    total, orders = world.statement("by_total"), world.engine.tables["orders"]
    bindings = total.open_many([{"customer": customer} for customer in range(8)])
    early = [binding.changes(timeout=0) for binding in bindings[:4]]
    sums = {at: Counter[Any]() for at in range(8)}
    for step in range(6):
        changed = {1000 + step: step % 3, 2000 + step: 7}
        with world.engine.transaction():
            for number, customer in changed.items():
                orders.insert(order(world, id=number, customer=customer, price=Decimal(step)))
        if step == 2:
            late = [binding.changes(timeout=0) for binding in bindings[4:]]
    world.engine.run()
    for at, changes in enumerate([*early, *late]):
        epochs = []
        for epoch, table in changes:
            epochs.append(epoch)
            for row in table.to_pylist():
                diff = row.pop("diff")
                sums[at][tuple(row.values())] += diff
        assert epochs == sorted(set(epochs)) and len(epochs) == {0: 3, 1: 3, 2: 3, 7: 4}.get(at, 1)
        assert +sums[at] == Counter(tuple(row.values()) for row in bindings[at].to_arrow().to_pylist())


def test_changes_of_a_slow_reader_wait_for_it(world: StatementTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ikebana.engine.subscriptions.CREDIT", 2)
    total, orders = world.statement("by_total"), world.engine.tables["orders"]
    slow, other = (total.open(customer=customer) for customer in (-1, -2))
    mine, others = slow.changes(timeout=0.05), other.changes(timeout=0)
    for step in range(9):
        for customer in (-1, -2):
            number = 1000 + 2 * step - customer
            orders.insert(order(world, id=number, customer=customer, price=Decimal(step)))
        world.engine.run()
        assert len(list(others)) == (2 if step == 0 else 1)
    counts = [sorted(zip(table["n"].to_pylist(), table["diff"].to_pylist(), strict=True)) for _, table in mine]
    assert counts == [[(0, 1)], *([(at, -1), (at + 1, 1)] for at in range(9))]


def test_changes_end_with_the_binding(world: StatementTables, by_key: Statement) -> None:
    one, two, nothing = by_key.open(id=7), by_key.open(id=12), by_key.open(id=-1)
    iterators = [binding.changes("now") for binding in (one, nothing, two)]
    seen: list[list[Any]] = [[], [], []]

    def follow(at: int) -> None:
        seen[at].extend(iterators[at])

    threads = [threading.Thread(target=follow, args=(at,), daemon=True) for at in range(3)]
    for thread in threads:
        thread.start()
    one.close()
    nothing.close()
    for thread in threads[:2]:
        thread.join(30)
    by_key.close()
    threads[2].join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert seen == [[], [], []]


# Statements.


def test_a_statement_that_is_closed_leaves_nothing(world: StatementTables) -> None:
    before = len(world.engine.status())
    with world.statement("by_join") as statement:
        binding = statement.open(**VALUES["by_join"][0])
        assert len(world.engine.status()) > before
    statement.close()
    for use in (lambda: statement.open(**VALUES["by_join"][0]), binding.to_arrow):
        with pytest.raises(DroppedError, match="closed"):
            use()
    binding.close()
    world.engine.run()
    assert len(world.engine.status()) == before
    with world.statement("by_join") as again:  # the name is free
        answer = again.open(**VALUES["by_join"][0]).to_arrow()
        assert not difference(answer, spark_answers()["by_join"][0])


def test_what_cannot_be_prepared_leaves_nothing(world: StatementTables) -> None:
    tables, before = set(world.engine.tables), len(world.engine.status())
    for name in ("join", *(name for name in STATEMENTS if name.endswith("_refused"))):
        with pytest.raises(SqlError):
            Statement(world.engine, "it", planned(name), [pa.field("id", pa.int64())], world.tables)
    with pytest.raises(SqlError, match="'it' has no parameters"):
        Statement(world.engine, "it", planned("join"), [], world.tables)
    world.install("join")
    with pytest.raises(DataflowError, match="'join' is taken"):
        Statement(world.engine, "join", planned("by_key"), [pa.field("id", pa.int64())], world.tables)
    world.engine.views["join"].drop()
    world.engine.run()
    assert (set(world.engine.tables), len(world.engine.status())) == (tables, before)
    with Statement(world.engine, "it", planned("by_key"), [pa.field("id", pa.int64())], world.tables) as statement:
        assert ids(statement.open(id=7)) == [7]


def test_a_table_that_statements_read_cannot_be_dropped(world: StatementTables, by_key: Statement) -> None:
    with pytest.raises(IkebanaError, match="'by_key'"):
        world.engine.drop_table("orders")
    with pytest.raises(IkebanaError, match="'by_key'"):
        world.engine.drop_table("parameters of by_key")
