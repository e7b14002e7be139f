"""The catalogue of arrangements: sharing, counting uses, failure and replacement."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ikebana.engine import Engine
from ikebana.engine.catalog import Catalog, Use, User
from ikebana.errors import DataflowError
from ikebana.plan import ir

_SOURCE = ir.make(ir.Source, name="t", fields=(pa.field("a", pa.int64()), pa.field("b", pa.int64())))
_BY_A, _BY_B = (ir.make(ir.Arrange, source=_SOURCE, key=(key,)) for key in "ab")
_TABLE, _VIEW, _OTHER = User("table", "t", is_owner=True), User("view", "v"), User("view", "w")


def catalog_with(*users: User, dataflow: str = "index") -> Catalog:
    catalog = Catalog()
    catalog.add(dataflow, _BY_A)
    for user in users:
        catalog.use(dataflow, user)
    return catalog


def test_an_arrangement_has_one_maintainer() -> None:
    catalog = catalog_with()
    assert catalog.maintainer(_BY_A) == "index" and catalog.maintainer(_BY_B) is None
    assert catalog.maintainer(ir.make(ir.Arrange, source=_SOURCE, key=("a",))) == "index", "equal plans are the same"
    assert catalog.arrangement("index") is _BY_A and catalog.dataflows() == ["index"]
    with pytest.raises(ValueError, match="'index' maintains this arrangement already"):
        catalog.add("another", _BY_A)


def test_users_share_and_the_last_one_drops() -> None:
    catalog = catalog_with(_TABLE, _VIEW, _OTHER)
    assert catalog.users_of("index") == [_TABLE, _VIEW, _OTHER] and catalog.owners_of("index") == [_TABLE]
    assert not catalog.release(Use("index", _VIEW))
    assert not catalog.release(Use("index", _TABLE))
    assert catalog.users_of("index") == [_OTHER] and catalog.owners_of("index") == []
    assert catalog.release(Use("index", _OTHER))
    assert catalog.maintainer(_BY_A) is None and catalog.dataflows() == []


def test_a_user_may_use_a_dataflow_twice() -> None:
    catalog = catalog_with(_VIEW, _VIEW)
    assert catalog.users_of("index") == [_VIEW]
    assert not catalog.release(Use("index", _VIEW))
    assert catalog.release(Use("index", _VIEW))


def test_only_users_release() -> None:
    catalog = catalog_with(_VIEW)
    with pytest.raises(ValueError, match="view 'w' does not use dataflow 'index'"):
        catalog.release(Use("index", _OTHER))
    assert catalog.users_of("index") == [_VIEW]


@pytest.mark.parametrize("first", ["failed", "replacement"])
def test_a_failed_dataflow_is_replaced(first: str) -> None:
    catalog = catalog_with(_VIEW, dataflow="failed")
    catalog.mark_failed("failed")
    assert catalog.has_failed("failed") and catalog.maintainer(_BY_A) is None
    assert catalog.users_of("failed") == [_VIEW], "users of a failed dataflow still have to release it"
    catalog.add("replacement", _BY_A)
    catalog.use("replacement", _OTHER)
    assert catalog.maintainer(_BY_A) == "replacement"
    uses = {"failed": Use("failed", _VIEW), "replacement": Use("replacement", _OTHER)}
    assert catalog.release(uses.pop(first))
    assert catalog.maintainer(_BY_A) == (None if first == "replacement" else "replacement")
    (last,) = uses.values()
    assert catalog.release(last)
    assert catalog.dataflows() == [] and not catalog.has_failed("failed")


def test_a_failure_may_be_reported_before_the_dataflow_is_added() -> None:
    catalog = Catalog()
    catalog.mark_failed("index")
    catalog.add("index", _BY_A)
    assert catalog.maintainer(_BY_A) is None


def test_no_dataflow_name_is_given_twice() -> None:
    catalog = Catalog()
    requests = ["v", "v", "v #2", "v", "w"]
    names = [catalog.new_dataflow_name(name) for name in requests]
    assert names[:2] == ["v", "v #2"] and names[-1] == "w" and len(set(names)) == len(names)


def test_names_of_tables_and_views_are_unique_until_freed() -> None:
    catalog = Catalog()
    catalog.claim_name("t")
    with pytest.raises(DataflowError, match="the name 't' is taken"):
        catalog.claim_name("t")
    catalog.free_name("t")
    catalog.claim_name("t")


def test_views_dropped_in_any_order_leave_only_the_table() -> None:
    with Engine() as engine:
        table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
        at_start = engine.catalog.dataflows()
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            views = [engine.install(f"view {number}", table.count("v")) for number in range(2)]
            views.append(engine.install("view 2", table.sum("v", "k")))
            assert len(engine.catalog.dataflows()) > len(at_start)
            for number in order:
                views[number].drop()
            assert engine.catalog.dataflows() == at_start
        engine.drop_table("t")
        assert engine.catalog.dataflows() == []


class CatalogMachine(RuleBasedStateMachine):
    """The catalogue against a list of uses: all operations in any order."""

    uses = Bundle("uses")

    def __init__(self) -> None:
        super().__init__()
        self.catalog = Catalog()
        self.model: list[Use] = []
        self.arrangements: dict[str, ir.Node] = {}
        self.failed: set[str] = set()

    def live(self, arrangement: ir.Node) -> list[str]:
        dataflows = {use.dataflow for use in self.model} - self.failed
        return [dataflow for dataflow in dataflows if self.arrangements[dataflow] is arrangement]

    @rule(target=uses, arrangement=st.sampled_from([_BY_A, _BY_B]), user=st.sampled_from([_TABLE, _VIEW, _OTHER]))
    def use(self, arrangement: ir.Node, user: User) -> Use:
        dataflow = self.catalog.maintainer(arrangement)
        if dataflow is None:
            dataflow = self.catalog.new_dataflow_name("index")
            assert dataflow not in self.arrangements
            self.catalog.add(dataflow, arrangement)
            self.arrangements[dataflow] = arrangement
        use = self.catalog.use(dataflow, user)
        self.model.append(use)
        return use

    @rule(use=consumes(uses))
    def release(self, use: Use) -> None:
        self.model.remove(use)
        assert self.catalog.release(use) == (use.dataflow not in {other.dataflow for other in self.model})

    @rule(use=uses)
    def fail(self, use: Use) -> None:
        self.catalog.mark_failed(use.dataflow)
        self.failed.add(use.dataflow)

    @invariant()
    def agrees(self) -> None:
        for arrangement in (_BY_A, _BY_B):
            maintainer = self.catalog.maintainer(arrangement)
            assert self.live(arrangement) == ([] if maintainer is None else [maintainer])
        assert set(self.catalog.dataflows()) == {use.dataflow for use in self.model}
        for dataflow in self.catalog.dataflows():
            users = Counter(use.user for use in self.model if use.dataflow == dataflow)
            assert set(self.catalog.users_of(dataflow)) == set(users)
            assert self.catalog.has_failed(dataflow) == (dataflow in self.failed)


TestCatalogMachine = CatalogMachine.TestCase
