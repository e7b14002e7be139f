"""Small sweeps that run as programs give what visits give, and what the model says.

`never` has all sweeps done by visits, `always` by programs where one can do it, `both` by both, which are compared in
every trace. All tests also say that programs were really run.
"""

from __future__ import annotations

import gc
import itertools
import random
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import graph, model
from ikebana.engine import Engine, Input, View
from ikebana.engine.collection import Collection, ExtensionIndex
from ikebana.errors import EvaluationError
from ikebana.expressions import Column, Literal
from ikebana.expressions.core import builders
from ikebana.expressions.core.base import Call
from ikebana.operators.expression_steps import Computed, Predicate, RowCondition
from ikebana.runtime import program as fusing
from ikebana.runtime import workspaces
from ikebana.runtime.dataflow import Dataflow
from tests.dataflow import expressions
from tests.dataflow.dataflow_run import (
    Close,
    DataflowRun,
    Drop,
    End,
    Hold,
    Install,
    Push,
    Read,
    Release,
    Script,
    Step,
    Undo,
    Work,
    histories,
)
from tests.dataflow.expressions import OPERATORS, Kind, Operator, combined, loops, programs
from tests.dataflow.harness import Domain, Setup, cluster_of, collected, engine_of, examples, read, setups

MODES = ["never", "always", "both"]
Data = dict[tuple[Any, ...], int]


@contextmanager
def fused(mode: str) -> Iterator[None]:
    """Sweeps are done by programs as the mode says; what no instruction has written is not what was there before."""
    with patch.object(fusing, "FUSE", mode), patch.object(workspaces, "CHECKS_BOUNDS", True):
        yield


def programs_run(engine: Engine) -> int:
    """How many sweeps were done by programs."""
    return sum(flow.programs_run for worker in cluster_of(engine).workers for flow in worker.flows.values())


def flow_of(view: View) -> Dataflow:
    return cluster_of(view._coordinator).workers[0].flows[view.dataflow]


# Random dataflows of operators that all have instructions.


def column(c: Collection, name: str) -> Column:
    field = next(field for field in c.node.columns if field.name == name)
    return Column(field.type, field.nullable, name)


def e_swap(d: Domain, p: int, c: Collection) -> Collection:
    return c.select(k0="v0", v0="k0")


def e_equal(d: Domain, p: int, c: Collection) -> Collection:
    return c.step(RowCondition(builders.equal(column(c, "k0"), column(c, "v0"))))


def e_join(d: Domain, p: int, a: Collection, b: Collection) -> Collection:
    """A join whose columns are chosen, not computed; `combined` says which."""
    met = a.join(b.select("k0", other="v0"), on="k0")
    names = [("k0", "other"), ("v0", "other"), ("other", "v0"), ("k0", "v0"), ("other", "k0")][p % 5]
    return met.select(k0=names[0], v0=names[1])


def m_join(d: Domain, p: int, x: Any, y: Any) -> Any:
    return model.join(x, y, lambda k, a, b: (k, a) if p % 5 == 3 else combined(d, p, k, a, b))


def m_equal(d: Domain, p: int, x: Any) -> Any:
    """Nulls, which are the first of a domain that has any, are equal to nothing."""
    return model.filter(x, lambda row: row[0] == row[1] and d.keys[row[0]] != (None,))


NAMES = ["negate", "concat", "concat_3", "consolidate", "arrange", "distinct", "distinct by key", "min", "max", "top_k"]
LOWERED: dict[str, Operator] = {
    **{name: OPERATORS[name] for name in NAMES},
    "join": Operator(e_join, m_join, arity=2, positive=True),
    "swap": Operator(e_swap, lambda d, p, x: model.map(x, lambda row: (row[1], row[0])), positive=True),
    "where": Operator(e_equal, m_equal, positive=True),
}
POSITIVE = [name for name, operator in LOWERED.items() if operator.positive]
KINDS = {
    "set": Kind(POSITIVE, ("set",)),
    "again": Kind(["concat", "swap", "where", "distinct", *["join"] * 3], ("again",)),
    "least": Kind(POSITIVE, ("set",), end="min"),
    "rounds": Kind(list(LOWERED), ("set", "again", "least", "rounds")),
}


def same(kind: pa.DataType, nullable: bool, *values: Any) -> Domain:
    """Keys and values of one type, in order."""
    both = tuple((value,) for value in values)
    return Domain((pa.field("k0", kind, nullable),), (pa.field("v0", kind, nullable),), both, both)


DOMAINS = [
    same(pa.int32(), False, -(2**31), -1, 0, 1, 2**31 - 1),
    same(pa.int16(), True, None, -(2**15), 0, 1, 2**15 - 1),
    same(pa.int64(), False, -(2**63), -1, 0, 2**63 - 1),
    same(pa.string(), True, None, "", "a", "a text of more than eight bytes", "\u00e9"),
    same(pa.decimal128(38, 2), False, Decimal("-1.00"), Decimal("0.00"), Decimal("1" * 36)),
]


@contextmanager
def lowered_operators() -> Iterator[None]:
    """Random dataflows have only operators that can be written as instructions."""
    with patch.dict(OPERATORS, LOWERED), patch.dict(expressions.KINDS, KINDS):
        yield


@st.composite
def cases(draw: Any, script: Callable[..., Any]) -> tuple[str, Domain, Any, Any]:
    """A mode, a domain, a program and what happens to it."""
    with lowered_operators():
        program = draw(st.one_of(programs(most=5, depth=1), loops(depth=0)))
    domain = draw(st.sampled_from(DOMAINS))
    return draw(st.sampled_from(MODES[1:])), domain, program, draw(script(domain, program))


@st.composite
def busy_scripts(draw: Any, domain: Domain, program: Any) -> Script:
    """Turns of a few changes, an epoch or two, and something else: reads, installs, drops, inputs that end."""
    inputs, number, size = st.integers(0, program.inputs - 1), st.integers(0, 3), program.size
    changes = st.builds(
        lambda n, diff: (n % len(domain.keys), n // len(domain.keys) % len(domain.vals), diff, 0),
        st.integers(0, len(domain.keys) * len(domain.vals) - 1),
        st.sampled_from([1, 1, -1, 2]),
    )
    pushes = st.lists(st.builds(Push, inputs, st.lists(changes, min_size=1, max_size=3)), min_size=1, max_size=2)
    others: st.SearchStrategy[Step] = st.one_of(
        st.builds(Read, number),
        st.builds(Work, st.integers(1, 200)),
        st.builds(Install, st.integers(0, size - 1)),
        st.builds(Drop, number),
        st.builds(Undo, inputs, st.booleans()),
        st.builds(End, inputs),
        st.builds(Hold, number),
        st.builds(Release, number),
    )
    turn = st.builds(
        lambda first, epochs, view, other: [*first, Close(epochs), Read(view), other],
        *(pushes, st.sampled_from([1, 1, 2]), number, others),
    )
    turns = draw(st.lists(turn, min_size=3, max_size=7))
    return Script([size - 1, draw(st.integers(0, size - 1))], [step for turn in turns for step in turn])


def test_oracle_random_dataflows_as_programs() -> None:
    """Changes, installs, drops, inputs that end, in any order, on up to three workers."""
    ran = []

    @examples(3, quick=0.7)
    @given(setups(3), cases(busy_scripts))
    def check(setup: Setup, case: tuple[str, Domain, Any, Any]) -> None:
        mode, domain, program, script = case
        with fused(mode), lowered_operators(), engine_of(setup) as engine:
            DataflowRun(engine, domain, program).play(script)
            ran.append(programs_run(engine))

    check()
    assert sum(ran) > len(ran) / 4


def test_oracle_random_dataflows_as_programs_at_every_epoch() -> None:
    """Several changes in an epoch, several epochs in a sweep, read at all epochs."""
    ran = []

    @examples(3, quick=0.7)
    @given(setups(2), cases(histories))
    def check(setup: Setup, case: tuple[str, Domain, Any, Any]) -> None:
        mode, domain, program, history = case
        with fused(mode), lowered_operators(), engine_of(setup) as engine:
            DataflowRun(engine, domain, program).live_through(history)
            ran.append(programs_run(engine))

    check()
    assert sum(ran) > len(ran) / 4


# Scenarios, played in every mode.


PAIR = {"k": pa.int32(), "v": pa.int32()}


def pairs_of(engine: Engine, name: str = "pairs") -> Input:
    return engine.input(name, PAIR)


def push(pairs: Input, changes: Counter[tuple[int, int]], epochs: list[int] | None = None) -> None:
    rows = list(changes)
    pairs.push({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, [changes[row] for row in rows], epochs)


def some_changes(r: random.Random, most: int = 4) -> Counter[tuple[int, int]]:
    return Counter({(r.randrange(4), r.randrange(4)): r.choice([1, 1, -1, 2]) for _ in range(r.randint(1, most))})


def texts(pairs: Collection) -> Collection:
    """The pairs with their second column as text, and both columns as a key of more than 64 bits."""
    k, v = column(pairs, "k"), column(pairs, "v")
    long = builders.cast(v, pa.int64())
    return pairs.step(Computed((("k", k), ("text", builders.cast(v, pa.string())), ("wide", long))))


def few(c: Collection, name: str) -> Predicate:
    """The rows whose text is one of two."""
    one, two = (Literal(pa.string(), False, value) for value in ("1", "2"))
    text = column(c, name)
    return Predicate(builders.disjunction([builders.equal(text, one), builders.equal(text, two)]))


def plus_one(columns: dict[str, Any]) -> dict[str, Any]:
    return {"k": columns["k"], "v": [value + 1 for value in columns["v"].to_pylist()]}


QUERIES: dict[str, Callable[[Collection, Collection], Collection]] = {
    "texts": lambda a, b: texts(a).join(texts(b).select("k", other="text"), on="k"),
    "join by texts": lambda a, b: texts(a).join(texts(b).select("text", other="k"), on="text"),
    "count of texts": lambda a, b: texts(a).concat(texts(b)).count(["k", "text", "wide"]),
    "distinct texts": lambda a, b: texts(a).concat(texts(b)).distinct(),
    "seen through views": lambda a, b: (
        texts(a).arrange("k").filter(few(texts(a), "text")).select(chosen="text").join(texts(b).arrange("k").negate())
    ),
    "lookups of texts": lambda a, b: texts(a).half_join(texts(b).select("text", other="k").arrange("text")),
    "lookups of nulls": lambda a, b: a.step(
        Computed((("k", column(a, "k")), ("none", Literal(pa.int32(), True, None)), ("v", column(a, "v"))))
    ).half_join(b.select("k", w="v").arrange("k")),
    "extension": lambda a, b: a.select("k", x="v").extend(
        "both",
        [
            ExtensionIndex(a.distinct().arrange("k"), "k"),
            ExtensionIndex(b.distinct().arrange("k"), "x", strict=True, exists=True),
        ],
    ),
    "extension without columns": lambda a, b: a.extend(
        "w", [ExtensionIndex(b.distinct().arrange("k"), name) for name in ("k", "v", "k")], ["v"]
    ).count("v"),
    "a map in the middle": lambda a, b: a.join(b.select("k", w="v"), on="k").map(PAIR, plus_one).sum("k", "v"),
    "a map before a loop": lambda a, b: graph.reach(
        a.map(PAIR, plus_one).select(src="k", dst="v").distinct(), b.select(node="k").distinct()
    ),
    "a loop before a map": lambda a, b: graph.reach(
        a.select(src="k", dst="v").distinct(), b.select(node="k").distinct()
    ).map({"k": pa.int32()}, lambda columns: {"k": columns["node"]}),
    "join": lambda a, b: a.join(b.select("k", w="v"), on="k"),
    "count": lambda a, b: a.count("k"),
    "sum": lambda a, b: a.sum("k", "v"),
    "top": lambda a, b: a.concat(b).top_k("k", 2),
    "least": lambda a, b: a.min("k").concat(b.negate()),
    "distinct": lambda a, b: a.concat(b).distinct(),
    "sum of a step": lambda a, b: a.step(
        Computed((("k", column(a, "k")), ("v", builders.add(column(a, "v"), column(a, "k")))))
    ).sum("k", "v"),
    "reach": lambda a, b: graph.reach(a.select(src="k", dst="v").distinct(), b.select(node="k").distinct()),
    "components": lambda a, b: graph.connected_components(a.concat(b).select(src="k", dst="v").distinct()),
}

Scenario = Callable[[Engine, Callable[[Collection, Collection], Collection], random.Random], Iterator[Data]]


def changes_and_epochs(engine: Engine, query: Any, r: random.Random) -> Iterator[Data]:
    """Several changes in each epoch, some of them ahead; several epochs in some sweeps."""
    inputs = [pairs_of(engine, name) for name in "ab"]
    view = engine.install("view", query(*inputs))
    for _ in range(12):
        for pairs in inputs:
            for _ in range(r.randint(0, 3)):
                changes = some_changes(r)
                push(pairs, changes, [engine.epoch + r.choice([0, 0, 1, 2])] * len(changes))
        engine.advance(engine.epoch + r.choice([1, 1, 2, 3]))
        if r.random() < 0.7:
            yield read(view)


def installed_in_the_middle(engine: Engine, query: Any, r: random.Random) -> Iterator[Data]:
    """The same query over shared arrangements, installed after some epochs and dropped; with sweeps cut short."""
    inputs = [pairs_of(engine, name) for name in "ab"]
    views: list[View] = []
    for turn in range(10):
        if turn in (0, 3, 6):
            views.append(engine.install(f"view {turn}", query(*inputs)))
        if turn == 8:
            views.pop(0).drop()
        for pairs in inputs:
            push(pairs, some_changes(r))
        engine.advance()
        cluster_of(engine).run_some(r.randint(0, 20))  # so that some dataflows are ahead of others
        if turn % 2:
            yield from map(read, views)


def one_that_ends(engine: Engine, query: Any, r: random.Random) -> Iterator[Data]:
    """One input ends, later the other."""
    inputs = [pairs_of(engine, name) for name in "ab"]
    view = engine.install("view", query(*inputs))
    for turn in range(12):
        for pairs in inputs[turn // 4 :]:
            push(pairs, some_changes(r))
        if turn in (3, 7):
            inputs[turn // 4].close()
        engine.advance()
        yield read(view)


SCENARIOS: list[Scenario] = [changes_and_epochs, installed_in_the_middle, one_that_ends]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("name", QUERIES)
def test_invariance_programs_and_visits(name: str, scenario: Scenario) -> None:
    results, ran = [], []
    for mode, workers in (("never", 1), ("always", 1), ("both", 1), ("always", 2)):
        with fused(mode), Engine(workers=workers) as engine:
            results.append(list(scenario(engine, QUERIES[name], random.Random(7))))
            ran.append(programs_run(engine))
    assert results[0] == results[1] == results[2] == results[3]
    assert any(results[0]) and not ran[0] and all(ran[1:])


def test_oracle_views_installed_while_programs_wait_for_each_other() -> None:
    """A view that imports an arrangement does not see what a program has not committed yet, nor see it twice."""
    for actions in range(24):
        with fused("always"), engine_of(Setup(workers=2)) as engine:
            pairs = pairs_of(engine)
            first = engine.install("first", pairs.count("k"))
            for changes in ({(1, 1): 1, (2, 2): 1, (3, 3): 1}, {(1, 2): 1}):
                push(pairs, Counter(changes))
                engine.advance()
                read(first)
            push(pairs, Counter({(1, 3): 1, (2, 3): 1, (4, 4): 1, (5, 5): 1}))
            engine.advance()
            cluster_of(engine).run_some(actions)
            second = engine.install("second", pairs.sum("k", "v"))
            assert read(second) == {(1, 6): 1, (2, 5): 1, (3, 3): 1, (4, 4): 1, (5, 5): 1}, actions
            assert programs_run(engine)


def answers_of_expressions(
    field: pa.Field, values: list[Any], expression: Callable[[Column], Call]
) -> tuple[list[dict[Any, int]], bool]:
    """How often each value is given with each result, by visits and by programs; whether the programs called Arrow."""
    results: list[dict[Any, int]] = []
    is_called = False
    for mode in ("never", "always"):
        with fused(mode), Engine() as engine:
            source = engine.input("source", [field])
            given = column(source, field.name)
            computed = source.step(Computed(((field.name, given), ("result", expression(given)))))
            view = engine.install("view", computed.count([field.name, "result"]))
            source.insert({field.name: values[:1]})
            engine.advance()
            read(view)
            with patch.object(fusing.Program, "_call", autospec=True, side_effect=fusing.Program._call) as call:
                source.insert({field.name: [*values, None]})
                engine.advance()
                results.append(read(view))
            is_called = call.called
    return results, is_called


TEXTS = ["".join(letters) for length in range(5) for letters in itertools.product("abé%", repeat=length)]


@pytest.mark.parametrize(
    ("pattern", "is_called"),
    [("a%", False), ("%a%é%", False), ("a%b", False), ("ab", False), ("a_%", True), ("a\\%b", True)],
)
def test_oracle_like_in_programs(pattern: str, is_called: bool) -> None:
    """Programs match patterns without placeholders for one character, and call Arrow for others."""
    constant = Literal(pa.string(), False, pattern)
    results, called = answers_of_expressions(
        pa.field("text", pa.string()), TEXTS, lambda text: Call(pa.bool_(), True, "Like", (text, constant))
    )
    assert results[0] == results[1] and any(is_like for _, is_like, _ in results[0])
    assert called == is_called


@pytest.mark.parametrize(
    ("first", "length", "is_called"), [(1, 2, False), (0, 3, False), (3, 9, False), (2, 0, False), (-2, 1, True)]
)
def test_oracle_substrings_in_programs(first: int, length: int, is_called: bool) -> None:
    """Programs take characters counted from the start, and call Arrow for those counted from the end."""
    places = (Literal(pa.int32(), False, first), Literal(pa.int32(), False, length))
    results, called = answers_of_expressions(
        pa.field("text", pa.string()), TEXTS, lambda text: Call(pa.string(), True, "Substring", (text, *places))
    )
    assert results[0] == results[1] and called == is_called


@pytest.mark.parametrize(
    "target", [pa.decimal128(38, 2), pa.decimal128(5, 1), pa.decimal128(3, 0), pa.decimal128(9, 4)]
)
def test_oracle_decimals_are_rounded_in_programs(target: pa.DataType) -> None:
    numbers = [Decimal(number).scaleb(-3) for number in (0, 4, 5, -5, 45, -45, 1_449, 1_450, -1_450, 1_500, 99_949)]
    results, called = answers_of_expressions(
        pa.field("number", pa.decimal128(12, 3)), numbers, lambda number: builders.cast(number, target)
    )
    assert results[0] == results[1] and not called


# Failure.


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_a_row_that_raises_is_left_to_visits(workers: int) -> None:
    """If it raises on one worker, then on all of them."""
    greatest = 2**31 - 1
    with fused("always"), Engine(workers=workers, share=False) as engine:
        pairs = pairs_of(engine)
        more = builders.add(column(pairs, "v"), Literal(pa.int32(), False, 1))
        view = engine.install("view", pairs.step(Computed((("k", column(pairs, "k")), ("v", more)))).max("k"))
        push(pairs, Counter({(1, 1): 1}))
        engine.advance()
        assert read(view) == {(1, 2): 1}
        flow = flow_of(view)
        steps: list[tuple[Any, Any, int]] = [  # changes, what the view then has, and how many programs have run
            ({(1, 5): 1}, {(1, 6): 1}, 1),
            ({(1, greatest): 1, (2, 2): 1}, None, 1),
            ({(2, 3): 1}, None, 2),
            ({(1, greatest): -1}, {(1, 6): 1, (2, 4): 1}, 2),
            ({(2, 7): 1}, {(1, 6): 1, (2, 8): 1}, 3),
        ]
        for changes, expected, ran in steps:
            push(pairs, Counter(changes))
            engine.advance()
            if expected is None:
                with pytest.raises(EvaluationError, match="overflow"):
                    read(view)
            else:
                assert read(view) == expected
            assert flow.programs_run == ran


@pytest.mark.parametrize("mode", MODES)
def test_oracle_changes_larger_than_a_register(mode: str) -> None:
    """First too many rows, then few rows that a join makes too many; small changes run as programs again."""
    with patch.object(fusing, "ROOM", 64), fused(mode), Engine() as engine:
        a, b = pairs_of(engine, "a"), pairs_of(engine, "b")
        view = engine.install("view", a.join(b.select("k", w="v"), on="k").count("k"))
        push(a, Counter({(0, 0): 1}))
        engine.advance()
        read(view)
        flow = flow_of(view)
        push(a, Counter({(k, v): 1 for k in range(10) for v in range(10)}))
        engine.advance()
        assert read(view) == {} and flow.programs_run == 0
        push(b, Counter({(1, v): 1 for v in range(20)}))
        engine.advance()
        assert read(view) == {(1, 200): 1} and flow.programs_run == 0
        push(b, Counter({(2, 1): 3}))
        engine.advance()
        assert read(view) == {(1, 200): 1, (2, 30): 1}
        assert flow.programs_run == (mode != "never")


def test_oracle_memtables_that_are_flushed_in_the_middle() -> None:
    """Changes of many rows, epoch after epoch: memtables grow, are flushed, and are compacted."""
    expected: Counter[int] = Counter()
    with fused("always"), Engine() as engine:
        pairs = pairs_of(engine)
        view = engine.install("view", pairs.count("k"))
        engine.advance()
        read(view)
        for epoch in range(50):
            rows = Counter({(k, epoch % 3): 1 if epoch % 5 else 2 for k in range(epoch, epoch + 60)})
            push(pairs, rows)
            expected.update({k: n for (k, _), n in rows.items()})
            engine.advance()
            read(view)
        assert read(view) == {(k, n): 1 for k, n in expected.items()}
        assert flow_of(view).programs_run == 50


@given(st.integers(0, 2**32))
def test_oracle_many_keys_are_searched_for_at_once(seed: int) -> None:
    """Keys with one value, and keys with hundreds, in several batches: joined, counted, and made distinct."""
    r = random.Random(seed)
    expected: Counter[tuple[int, int]] = Counter()
    with fused("always"), Engine() as engine:
        pairs, asked = pairs_of(engine), engine.input("asked", {"k": pa.int32()})
        asked.insert({"k": list(range(0, 60, 2))})
        views = {
            "distinct": engine.install("distinct", pairs.distinct()),
            "count": engine.install("count", pairs.count("k")),
            "join": engine.install("join", asked.arrange("k").join(pairs.arrange("k"))),
        }
        for _ in range(4):
            keys = [r.randrange(60) for _ in range(r.choice([15, 16, 17, 100, 300]))]
            changes = Counter((k, r.randrange(1 if k < 50 else 400)) for k in keys)
            if expected:
                changes.subtract({row: n for row, n in expected.items() if r.random() < 0.3})
            push(pairs, changes)
            expected.update(changes)
            expected = +expected
            engine.advance()
            counts = Counter[int]()
            for (k, _), n in expected.items():
                counts[k] += n
            assert read(views["distinct"]) == dict.fromkeys(expected, 1)
            assert read(views["count"]) == dict.fromkeys(counts.items(), 1)
            assert read(views["join"]) == {row: n for row, n in expected.items() if row[0] % 2 == 0}
        assert programs_run(engine) > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_a_change_larger_than_a_memtable_is_done_by_a_program(workers: int) -> None:
    """One edge is removed and inserted again, on which hundreds of nodes depend."""
    nodes = 700
    with fused("small"), Engine(workers) as engine:
        edges, _, view = reach_of(engine)
        edges.insert({"src": list(range(2, nodes)), "dst": list(range(3, nodes + 1))})
        engine.advance()
        read(view)
        before = flow_of(view).programs_run
        for push_edge, reached in ((edges.remove, 2), (edges.insert, nodes + 1), (edges.remove, 2)):
            push_edge({"src": [1], "dst": [2]})
            engine.advance()
            assert len(read(view)) == reached
        assert flow_of(view).programs_run == before + 3


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_a_program_goes_on_when_its_memtables_have_grown(workers: int) -> None:
    """It starts again for more room in its registers only, and only the first time."""
    counts, make_room = list[int](), fusing.Program._make_room
    with fused("small"), Engine(workers) as engine:
        table = engine.table("t", {"id": pa.int64(), "group": pa.int64()}, key="id")
        view = engine.install("counts", table.count("group"))
        for step in range(4):
            rows = {"id": list(range(1000 * step, 1000 * step + 1000)), "group": list(range(1000))}
            with patch.object(fusing.Program, "_make_room", autospec=True, side_effect=make_room) as made:
                table.insert(rows)
                assert read(view) == {(group, step + 1): 1 for group in range(1000)}
            counts.append(made.call_count)
        assert flow_of(view).programs_run >= 3
    assert counts[2:] == [0, 0], counts


def test_oracle_a_table_without_rows_does_not_prevent_programs() -> None:
    """A dataflow imports an index that has no history to replay."""
    with fused("small"), Engine() as engine:
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
        extra = engine.table("extra", {"src": pa.int32(), "dst": pa.int32()}, key=["src", "dst"])
        indexed = extra.arrange("src", "dst").rows().select("src", "dst")
        view = engine.install("closure", graph.transitive_closure(edges.select("src", "dst").concat(indexed)))
        for node in range(3):
            edges.insert({"src": [node], "dst": [node + 1]})
            engine.advance()
            assert len(read(view)) == (node + 1) * (node + 2) // 2
        assert flow_of(view).programs_run == 2  # the first change is the first sweep
        extra.insert({"src": [3], "dst": [4]})
        assert len(read(view)) == 10


# What programs must not change.


def reach_of(engine: Engine) -> tuple[Input, Input, View]:
    edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
    roots = engine.input("roots", {"node": pa.int32()})
    view = engine.install("reach", graph.reach(edges, roots))
    edges.insert({"src": [0, 1], "dst": [1, 2]})
    roots.insert({"node": [0]})
    engine.advance()
    read(view)
    return edges, roots, view


def change(edges: Input, view: View, times: int = 3) -> None:
    for step in range(times):
        edges.insert({"src": [2 + step], "dst": [3 + step]})
        view._coordinator.advance()
        assert len(read(view)) == 4 + step


def test_invariance_explain_and_status() -> None:
    """All but the bytes, which include memtables."""
    shown = []
    for mode in MODES:
        with fused(mode), Engine() as engine:
            edges, roots, view = reach_of(engine)
            change(edges, view)
            assert bool(flow_of(view).programs_run) == (mode != "never")
            status = [(each.dataflow, each.names, each.key, each.readers, each.upper) for each in engine.status()]
            explained = engine.explain(graph.reach(edges, roots))
            shown.append((re.sub(r"[0-9.]+ k?B", "some bytes", explained), status))
    assert shown[0] == shown[1] == shown[2]


def test_dropped_views_free_what_their_programs_read() -> None:
    with fused("always"), Engine() as engine:
        edges, _, view = reach_of(engine)
        change(edges, view)
        flow = flow_of(view)
        program = flow._lowered.program
        assert program is not None and flow.programs_run
        inner = [weakref.ref(trace.spine) for trace in program._written]
        del flow, program
        gc.collect()
        assert all(spine() is not None for spine in inner)
        view.drop()
        engine.run()
        gc.collect()
        assert not any(spine() for spine in inner)


def test_an_idle_dataflow_is_small_after_its_program_ran() -> None:
    """What a program adds: its code, and a memtable for each trace that the dataflow maintains."""
    with fused("always"), Engine() as engine:
        edges, _, view = reach_of(engine)
        before = flow_of(view).own_bytes
        change(edges, view, 1)
        flow = flow_of(view)
        program = flow._lowered.program
        assert program is not None and flow.programs_run == 1
        assert flow.own_bytes - before + program._code.nbytes < 20_000
        assert collected(view.read())
