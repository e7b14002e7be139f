"""Each feature of the language in a small program with known results; all of them also equal naive evaluation."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ikebana import Engine
from ikebana.datalog import Program, check, load, parse
from ikebana.errors import DatalogError, DroppedError, EvaluationError
from tests.datalog import naive

EDGES = ".decl edge(x: number, y: number)  edge(1, 2).  edge(2, 3).  edge(3, 4).  edge(2, 5)."
NAMES = '.decl name(x: symbol)  name("ann").  name("bob").  name("").  name("né").'

PROGRAMS: dict[str, tuple[str, dict[str, set[tuple[Any, ...]]]]] = {
    "transitive closure": (
        EDGES
        + """
        .decl tc(x: number, y: number)
        tc(x, y) :- edge(x, y).
        tc(x, z) :- tc(x, y), tc(y, z).
        """,
        {"tc": {(1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 4)}},
    ),
    "same generation": (
        EDGES
        + """
        .decl sg(x: number, y: number)
        sg(x, y) :- edge(p, x), edge(p, y), x != y.
        sg(x, y) :- edge(a, x), sg(a, b), edge(b, y).
        """,
        {"sg": {(3, 5), (5, 3)}},
    ),
    "mutual recursion": (
        EDGES
        + """
        .decl even(x: number)  .decl odd(x: number)
        even(1).
        odd(y) :- even(x), edge(x, y).
        even(y) :- odd(x), edge(x, y).
        """,
        {"even": {(1,), (3,), (5,)}, "odd": {(2,), (4,)}},
    ),
    "negation and wildcards": (
        EDGES
        + """
        .decl leaf(x: number)  .decl root(x: number)  .decl none()
        leaf(y) :- edge(_, y), !edge(y, _).
        root(x) :- edge(x, _), !edge(_, x).
        none() :- !edge(_, _).
        """,
        {"leaf": {(4,), (5,)}, "root": {(1,)}, "none": set()},
    ),
    "relations without attributes": (
        EDGES
        + """
        .decl yes()  .decl no()  .decl both(x: number)
        yes() :- edge(1, _).
        no() :- edge(7, _).
        both(1) :- yes(), !no().
        """,
        {"yes": {()}, "no": set(), "both": {(1,)}},
    ),
    "disjunction, several heads, constants and repeated variables": (
        EDGES
        + """
        .decl a(x: number)  .decl b(x: number)  .decl loop(x: number)
        edge(9, 9).
        a(x), b(x) :- edge(x, y), (y = 2 ; y = 3).
        loop(x) :- edge(x, x).
        b(7) :- edge(1, 2).
        """,
        {"a": {(1,), (2,)}, "b": {(1,), (2,), (7,)}, "loop": {(9,)}},
    ),
    "arithmetic": (
        """
        .decl n(x: number)  n(7).  n(-7).
        .decl r(k: symbol, x: number, v: number)
        r("+", x, x + 1) :- n(x).
        r("-", x, 1 - x) :- n(x).
        r("*", x, x * -3) :- n(x).
        r("/", x, x / 2) :- n(x).
        r("%", x, x % 3) :- n(x).
        r("^", x, x ^ 3) :- n(x).
        r("neg", x, -x) :- n(x).
        r("band", x, x band 12) :- n(x).
        r("bor", x, x bor 8) :- n(x).
        r("bxor", x, x bxor 5) :- n(x).
        r("bnot", x, bnot x) :- n(x).
        r("bshl", x, x bshl 2) :- n(x).
        r("bshr", x, x bshr 1) :- n(x).
        r("bshru", x, x bshru 28) :- n(x).
        r("land", x, x land 0) :- n(x).
        r("lor", x, x lor 0) :- n(x).
        r("lxor", x, x lxor 1) :- n(x).
        r("lnot", x, lnot x) :- n(x).
        r("min", x, min(x, 0, 3)) :- n(x).
        r("max", x, max(x, 0)) :- n(x).
        r("wrap", x, 2147483647 + x) :- n(x).
        """,
        {
            "r": {
                *{("+", 7, 8), ("-", 7, -6), ("*", 7, -21), ("/", 7, 3), ("%", 7, 1), ("^", 7, 343), ("neg", 7, -7)},
                *{("+", -7, -6), ("-", -7, 8), ("*", -7, 21), ("/", -7, -3), ("%", -7, -1), ("^", -7, -343)},
                *{("neg", -7, 7), ("band", 7, 4), ("bor", 7, 15), ("bxor", 7, 2), ("bnot", 7, -8), ("bshl", 7, 28)},
                *{("band", -7, 8), ("bor", -7, -7), ("bxor", -7, -4), ("bnot", -7, 6), ("bshl", -7, -28)},
                *{("bshr", 7, 3), ("bshr", -7, -4), ("bshru", 7, 0), ("bshru", -7, 15), ("land", 7, 0)},
                *{("land", -7, 0), ("lor", 7, 1), ("lor", -7, 1), ("lxor", 7, 0), ("lxor", -7, 0), ("lnot", 7, 0)},
                *{("lnot", -7, 0), ("min", 7, 0), ("min", -7, -7), ("max", 7, 7), ("max", -7, 0)},
                *{("wrap", 7, -2147483642), ("wrap", -7, 2147483640)},
            }
        },
    ),
    "unsigned and float": (
        """
        .decl u(x: unsigned)  u(3).  u(4294967295).
        .decl f(x: float)  f(1.5).  f(-2).
        .decl v(x: unsigned)  .decl g(x: float)  .decl h(x: float, y: number)
        v(x + 2) :- u(x), x > 5.
        v(x / 2) :- u(x).
        g(x * 2 + 0.5) :- f(x), x < 10.
        h(x, ftoi(x)) :- f(x).
        g(itof(7)).
        """,
        {"v": {(1,), (2147483647,)}, "g": {(3.5,), (-3.5,), (7.0,)}, "h": {(1.5, 1), (-2.0, -2)}},
    ),
    "strings": (
        NAMES
        + """
        .decl r(k: symbol, x: symbol)  .decl n(x: symbol, n: number)
        r("cat", cat(x, "-", x)) :- name(x), x != "".
        r("+", "<" + x + ">") :- name(x).
        r("substr", substr(x, 1, 2)) :- name(x).
        r("to_string", to_string(strlen(x))) :- name(x).
        r("match", x) :- name(x), match("[a-b].*", x).
        r("!match", x) :- name(x), !match("[a-b].*", x).
        r("contains", x) :- name(x), contains("n", x).
        r("<", x) :- name(x), x < "b".
        r("max", max(x, "az")) :- name(x).
        n(x, strlen(x)) :- name(x).
        n("12", to_number("12") + 1).
        """,
        {
            "r": {
                *{("cat", "ann-ann"), ("cat", "bob-bob"), ("cat", "né-né"), ("substr", "nn"), ("substr", "ob")},
                *{("substr", ""), ("substr", "é"), ("to_string", "3"), ("to_string", "0"), ("to_string", "2")},
                *{("match", "ann"), ("match", "bob"), ("!match", ""), ("!match", "né")},
                *{("contains", "ann"), ("contains", "né"), ("<", "ann"), ("<", "")},
                *{
                    ("max", "az"),
                    ("max", "bob"),
                    ("max", "né"),
                    ("+", "<ann>"),
                    ("+", "<bob>"),
                    ("+", "<>"),
                    ("+", "<né>"),
                },
            },
            "n": {("ann", 3), ("bob", 3), ("", 0), ("né", 2), ("12", 13)},
        },
    ),
    "symbols that are only compared": (
        NAMES
        + """
        .decl likes(x: symbol, y: symbol)  likes("ann", "bob").  likes("bob", "né").
        .decl tc(x: symbol, y: symbol)
        tc(x, y) :- likes(x, y).
        tc(x, z) :- tc(x, y), likes(y, z), x != "eve".
        .decl same(x: symbol)
        same(x) :- tc(x, y), y = "né", name(x).
        """,
        {"tc": {("ann", "bob"), ("bob", "né"), ("ann", "né")}, "same": {("ann",), ("bob",)}},
    ),
    "aggregates": (
        EDGES
        + """
        .decl degree(x: number, n: number)
        .decl total(s: number, n: number, lo: number, hi: number)  .decl average(m: float)
        .decl smaller(x: number, n: number)  .decl empty(c: number, s: number)  .decl nothing(x: number)
        degree(x, n) :- (edge(x, _) ; edge(_, x)), n = count : { edge(x, _) }.
        total(s, n, lo, hi) :- s = sum y : { edge(_, y) }, n = count : { edge(_, _) },
            lo = min x * 2 : { edge(x, _) }, hi = max y : { edge(x, y), x < 3 }.
        average(m) :- m = mean y : { edge(_, y) }.
        smaller(x, n) :- edge(x, _), n = count : { edge(y, _), y < x }.
        empty(c, s) :- c = count : { edge(100, _) }, s = sum x : { edge(100, x) }.
        nothing(x) :- x = min y : { edge(100, y) }.
        """,
        {
            "degree": {(1, 1), (2, 2), (3, 1), (4, 0), (5, 0)},
            "total": {(14, 4, 2, 5)},
            "average": {(3.5,)},
            "smaller": {(1, 0), (2, 1), (3, 3)},
            "empty": {(0, 0)},
            "nothing": set(),
        },
    ),
    "aggregates of aggregates": (
        EDGES
        + """
        .decl degree(x: number, n: number)  .decl largest(x: number, n: number)  .decl nested(n: number)
        degree(x, n) :- edge(x, _), n = count : { edge(x, _) }.
        largest(x, n) :- degree(x, n), n = max m : { degree(_, m) }.
        nested(n) :- n = sum c : { edge(x, _), c = count : { edge(x, _) } }.
        """,
        {"largest": {(2, 2)}, "nested": {(6,)}},
    ),
    "an aggregate in the head, and functors in atoms": (
        EDGES
        + """
        .decl size(n: number)  .decl next(x: number)  .decl shift(x: number)
        size(count : { edge(_, _) }).
        next(x) :- edge(x, y), edge(x + 1, _).
        shift(x) :- edge(x, y), edge(y, y + 1).
        """,
        {"size": {(4,)}, "next": {(1,), (2,)}, "shift": {(1,), (2,)}},
    ),
    "joins on computed values": (
        EDGES
        + """
        .decl at(step: number, x: number)  .decl far(x: number, y: number)
        at(0, 1).
        at(step + 1, y) :- at(step, x), edge(x, y), step < 5.
        far(x, y) :- at(step + 2, y), at(step, x).
        far(x, y) :- at(s, x), t = s + 3, at(t, y).
        """,
        {"far": {(1, 3), (1, 5), (2, 4), (1, 4)}},
    ),
    "products": (
        EDGES
        + """
        .decl pair(x: number, y: number)
        pair(x, y) :- edge(x, 2), edge(3, y).
        """,
        {"pair": {(1, 4)}},
    ),
    "components": (
        EDGES
        + """
        .comp Closure<T> {
            .decl step(x: T, y: T)  .decl path(x: T, y: T)
            path(x, y) :- step(x, y).
            path(x, z) :- path(x, y), step(y, z).
        }
        .init forward = Closure<number>
        .init backward = Closure<number>
        forward.step(x, y) :- edge(x, y).
        backward.step(y, x) :- edge(x, y), x > 1.
        """,
        {
            "forward.path": {(1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 4)},
            "backward.path": {(3, 2), (4, 3), (4, 2), (5, 2)},
        },
    ),
    "facts and rules for one relation": (
        EDGES
        + """
        .decl near(x: number, y: number)
        near(0, 1).
        near(x, y) :- edge(x, y), x < 2.
        near(x + 10, y) :- near(x, y), x < 15.
        """,
        {"near": {(0, 1), (1, 2), (10, 1), (11, 2), (20, 1), (21, 2)}},
    ),
    "an attribute named diff": (
        ".decl a(diff: number, x: number)  a(1, 2).  .decl b(diff: number)  b(y) :- a(x, y).",
        {"a": {(1, 2)}, "b": {(2,)}},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_known_results(name: str) -> None:
    text, expected = PROGRAMS[name]
    checked = check(parse(text))
    with Engine() as engine:
        program = Program(engine, text)
        rows = {relation: program.relation(relation).rows() for relation in checked.relations}
    assert {relation: rows[relation] for relation in expected} == expected
    facts = {relation: set(given) for relation, given in checked.facts.items()}
    assert rows == naive.evaluate(checked, facts)


def test_facts_are_sets() -> None:
    with Engine() as engine:
        program = load(engine, ".decl a(x: number)  .decl b(x: number)  b(x) :- a(x).")
        program.insert("a", [(1,), (1,), (2,)])
        program.insert("a", [(1,)])
        program.remove("a", [(1,), (1,), (7,)])
        assert program.relation("a").rows() == program.relation("b").rows() == {(2,)}


def test_derived_relations_gain_and_lose_facts_of_their_own() -> None:
    with Engine() as engine:
        program = load(engine, EDGES + ".decl out(x: number)  out(x) :- edge(x, _).")
        program.insert("out", [(1,), (9,)])
        program.remove("edge", [(1, 2)])
        assert program.relation("out").rows() == {(1,), (2,), (3,), (9,)}
        program.remove("out", [(1,), (2,)])
        assert program.relation("out").rows() == {(2,), (3,), (9,)}


def test_a_transaction_is_one_epoch() -> None:
    with Engine() as engine:
        program = load(engine, ".decl a(x: number, s: symbol)  .decl b(s: symbol)  b(s) :- a(_, s).")
        feed = program.relation("b").changes(timeout=0)
        with program.transaction():
            program.insert("a", {"x": [1, 2], "s": ["one", "two"]})
            program.remove("a", [(1, "one")])
            program.insert("a", pa.table({"s": ["three"], "x": [3]}))
        engine.run()
        ((_, changes),) = list(feed)
        assert sorted(zip(changes["s"].to_pylist(), changes["diff"].to_pylist(), strict=True)) == [
            ("three", 1),
            ("two", 1),
        ]


def test_only_what_is_asked_for_is_computed() -> None:
    with Engine() as engine:
        program = load(
            engine, EDGES + ".decl a(x: number)  .decl b(x: number)  a(x) :- edge(x, _).  b(x) :- a(x).  .output a"
        )
        assert program.outputs == ["a"]
        assert program.name + ".b" not in engine.views
        assert program.relation("b").rows() == {(1,), (2,), (3,)}


def test_a_closed_program_leaves_nothing_behind() -> None:
    with Engine() as engine:
        before = engine.status()
        with load(engine, PROGRAMS["mutual recursion"][0]) as program:
            assert program.relation("odd").rows()
        assert engine.status() == before and not engine.tables and not engine.views
        with pytest.raises(DroppedError):
            program.insert("edge", [(1, 2)])


def test_removing_and_adding_again_leaves_the_state_as_it_was() -> None:
    many = [(0, number) for number in range(1, 3000)]
    with Engine() as engine:
        program = load(engine, PROGRAMS["transitive closure"][0])

        def state() -> tuple[int, int]:
            program.remove("edge", many)
            assert len(program.relation("tc")) == 8
            program.insert("edge", many)
            rows = len(program.relation("tc"))
            engine.run()
            return rows, sum(status.rows for status in engine.status())

        first = state()
        states = [state() for _ in range(12)]
        assert all(rows == first[0] for rows, _ in states)
        assert max(size for _, size in states) <= 4 * first[1]  # what changes leave behind is compacted


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 2, 3)], "has 2 attributes"),
        ([("a", 2)], "is a number"),
        ([(1.5, 2)], "is a number"),
        ([(2**31, 2)], "is a number"),
        ([(None, 2)], "is a number"),
        ({"x": [1]}, "cannot have these facts"),
    ],
)
def test_facts_that_do_not_fit_are_refused(rows: Any, message: str) -> None:
    with Engine() as engine:
        program = load(engine, EDGES + ".output edge")
        with pytest.raises(DatalogError, match=message):
            program.insert("edge", rows)
        assert len(program.relation("edge")) == 4
        with pytest.raises(DatalogError, match='no relation "edgs"'):
            program.insert("edgs", [])


def test_a_division_by_zero_is_an_error_of_its_row() -> None:
    with Engine() as engine:
        program = load(
            engine, ".decl a(x: number)  .decl b(x: number)  b(10 / x) :- a(x).  .decl c(x: number)  c(x) :- a(x)."
        )
        program.insert("a", [(0,), (5,)])
        with pytest.raises(EvaluationError, match="division by zero"):
            program.relation("b").rows()
        assert program.relation("c").rows() == {(0,), (5,)}
        program.remove("a", [(0,)])
        assert program.relation("b").rows() == {(2,)}


def test_constants_must_fit_their_type() -> None:
    with Engine() as engine, pytest.raises(DatalogError, match="more than 32 bits"):
        load(engine, ".decl a(x: number)  .decl b(x: number)  a(x) :- b(x), x < 3000000000.")


def test_patterns_are_regular_expressions() -> None:
    with Engine() as engine:
        with pytest.raises(DatalogError, match="not a regular expression"):
            load(engine, NAMES + '.decl a(x: symbol)  a(x) :- name(x), match("(", x).')
        program = load(engine, NAMES + ".decl p(x: symbol)  .decl a(x: symbol)  a(x) :- name(x), p(y), match(y, x).")
        program.insert("p", [("(",), ("b.*",)])
        assert program.relation("a").rows() == {("bob",)}


def test_ord_orders_symbols_that_are_not_computed_with() -> None:
    with Engine() as engine:
        program = load(
            engine, NAMES + ".decl pair(x: symbol, y: symbol)  pair(x, y) :- name(x), name(y), ord(x) < ord(y)."
        )
        assert len(program.relation("pair")) == 6
        with pytest.raises(DatalogError, match="ord in a program that computes with symbols"):
            load(engine, NAMES + '.decl a(x: number)  a(ord(x)) :- name(x), match("a", x).')
