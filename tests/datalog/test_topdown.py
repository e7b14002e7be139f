"""Questions to programs: answers equal the relation restricted to the arguments, while facts and openings change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Engine
from ikebana.datalog import Program, check, parse
from ikebana.datalog.topdown import Query, WholeQuery
from ikebana.errors import DatalogError, DroppedError, IkebanaError
from tests.datalog import naive
from tests.datalog.test_oracle import ARITIES, FACTS, VALUES_OF, change, programs, rows_by_relation
from tests.datalog.test_programs import PROGRAMS
from tests.profiles import examples

CLOSURE = """
    .decl edge(x: number, y: number)
    .decl tc(x: number, y: number)
    tc(x, y) :- edge(x, y).
    tc(x, z) :- tc(x, y), edge(y, z).
"""
Question = tuple[str, list[str]]
"""A relation, and for each argument whether it is a parameter (`b`) or free (`?`)."""
Step = tuple[dict[str, list[Any]], dict[str, list[Any]], dict[int, list[Any]]]
"""Facts that are inserted, and removed, and for each question the values for which it is asked then."""


@st.composite
def questions(draw: st.DrawFn, relations: dict[str, int]) -> list[Question]:
    names = draw(st.lists(st.sampled_from(sorted(relations)), min_size=1, max_size=2))
    return [(name, [draw(st.sampled_from("b?")) for _ in range(relations[name])]) for name in names if relations[name]]


def check_answers(text: str, asked: list[Question], steps: list[Step], workers: int) -> None:
    """Ask questions while facts change, each for new values at every step, and compare all answers after every step."""
    checked = check(parse(text))
    facts: naive.Relations = {name: set(checked.facts.get(name, ())) for name in checked.relations}
    with Engine(workers=workers) as engine:
        program = Program(engine, text)
        queries = []
        for name, forms in asked:
            arguments = ", ".join(f"x{place}" if form == "b" else form for place, form in enumerate(forms))
            queries.append(program.query(f"{name}({arguments})"))
        openings: list[list[Any]] = [[] for _ in asked]
        for inserted, removed, values in steps:
            change(program, facts, inserted, removed)
            full = naive.evaluate(checked, facts)
            for number, (name, forms) in enumerate(asked):
                bound = {place: values[number][place] for place, form in enumerate(forms) if form == "b"}
                answer = queries[number].open({f"x{place}": value for place, value in bound.items()})
                openings[number].append((bound, answer))
                for wanted, opened in openings[number]:
                    rows = {row for row in full[name] if all(row[place] == value for place, value in wanted.items())}
                    assert opened.rows() == rows, queries[number].explain()
                if len(openings[number]) > 1:
                    openings[number].pop(0)[1].close()
        program.close()
        assert not engine.tables and not engine.views


@examples(1, quick=0.2)
@given(programs(), questions(ARITIES), st.data(), st.integers(1, 3))
def test_oracle_answers_are_the_relation_restricted_to_the_arguments(
    text: str, asked: list[Question], data: st.DataObject, workers: int
) -> None:
    values = st.lists(st.integers(0, 3), min_size=2, max_size=2)
    steps = st.tuples(FACTS, FACTS, st.fixed_dictionaries({number: values for number in range(len(asked))}))
    check_answers(text, asked, data.draw(st.lists(steps, min_size=2, max_size=3)), workers)


@examples(1, quick=0.2)
@given(st.sampled_from(sorted(PROGRAMS)), st.data(), st.integers(1, 3))
def test_oracle_answers_of_known_programs(name: str, data: st.DataObject, workers: int) -> None:
    text, _ = PROGRAMS[name]
    relations = check(parse(text)).relations
    facts = rows_by_relation(
        {relation.name: [VALUES_OF[kind] for kind in relation.types] for relation in relations.values()}
    )
    asked = data.draw(questions({relation.name: relation.arity for relation in relations.values()}))
    values = {
        number: st.tuples(*(VALUES_OF[kind] for kind in relations[name].types)).map(list)
        for number, (name, _) in enumerate(asked)
    }
    steps = st.tuples(facts, facts, st.fixed_dictionaries(values))
    check_answers(text, asked, data.draw(st.lists(steps, min_size=1, max_size=3)), workers)


@pytest.fixture
def engine() -> Any:
    with Engine() as engine:
        yield engine


@pytest.fixture
def closure(engine: Engine) -> Program:
    program = Program(engine, CLOSURE)
    program.insert("edge", [(1, 2), (2, 3), (3, 4), (1, 5), (6, 6)])
    return program


@pytest.mark.parametrize(
    ("question", "values", "rows"),
    [
        ("tc(x, ?)", {"x": 2}, {(2, 3), (2, 4)}),
        ("tc(?, x)", {"x": 3}, {(1, 3), (2, 3)}),
        ("tc(x, y)", {"x": 1, "y": 4}, {(1, 4)}),
        ("tc(x, y)", {"x": 4, "y": 1}, set()),
        ("tc(x, x)", {"x": 6}, {(6, 6)}),
        ("tc(x, x)", {"x": 1}, set()),
        ("tc(2, ?)", {}, {(2, 3), (2, 4)}),
        ("tc(2, x)", {"x": 4}, {(2, 4)}),
        ("tc(x, _)", {"x": 1}, {(1,)}),
        ("tc(?, _)", {}, {(1,), (2,), (3,), (6,)}),
        ("tc(?y, ?y)", {}, {(6, 6)}),
        ("edge(x, ?)", {"x": 1}, {(1, 2), (1, 5)}),
    ],
)
def test_questions(closure: Program, question: str, values: dict[str, int], rows: set[Any]) -> None:
    query = closure.query(question)
    answer = query.open(values)
    assert answer.rows() == rows
    assert {tuple(row.values()) for row in query.read(**values).to_pylist()} == rows
    closure.insert("edge", [(4, 1)])
    closure.remove("edge", [(4, 1)])
    assert answer.rows() == rows


def test_answers_have_facts_that_are_inserted_into_derived_relations(closure: Program) -> None:
    query = closure.query("tc(x, ?)")
    assert isinstance(query, Query)
    answer = query.open(x=5)
    closure.insert("tc", [(5, 1)])
    assert answer.values == {"x": 5}
    assert answer.rows() == {(5, 1), (5, 2), (5, 3), (5, 4), (5, 5)}


def test_symbols_are_asked_for_as_strings(engine: Engine) -> None:
    program = Program(engine, ".decl a(x: symbol, y: symbol) .decl b(x: symbol, y: symbol) b(y, x) :- a(x, y).")
    program.insert("a", [("x", "y"), ("z", "y")])
    assert program.query("b(n, ?)").open(n="y").rows() == {("y", "x"), ("y", "z")}
    assert program.query('b("y", ?)').open().rows() == {("y", "x"), ("y", "z")}
    assert program.query("b(n, ?)").open(n="unknown").rows() == set()


def test_closing_a_program_closes_its_questions(engine: Engine) -> None:
    program = Program(engine, CLOSURE)
    program.query("tc(x, ?)").open(x=1)
    program.query("tc(?, ?)").open()
    kept = program.query("tc(?, x)")
    program.close()
    assert not engine.tables and not engine.views
    with pytest.raises(DroppedError):
        kept.open(x=1)


def test_changes_of_an_answer_are_its_own(closure: Program) -> None:
    query = closure.query("tc(x, ?)")
    answer, _other = query.open(x=2), query.open(x=1)
    changes = answer.changes(since="now", timeout=0)
    closure.insert("edge", [(4, 7)])
    closure.insert("edge", [(1, 9)])
    closure.engine.run()
    assert [table.to_pylist() for _, table in changes] == [[{"x": 2, "y": 7, "diff": 1}]]


def test_many_openings_are_one_dataflow(closure: Program) -> None:
    query = closure.query("tc(x, ?)")
    assert isinstance(query, Query)
    dataflows = {status.dataflow for status in closure.engine.status()}
    answers = query.open_many([{"x": number} for number in range(1000)])
    assert answers[1].rows() == {(1, 2), (1, 3), (1, 4), (1, 5)}
    assert {status.dataflow for status in closure.engine.status()} == dataflows
    for answer in answers:
        answer.close()


def bytes_kept(program: Program, query: Query) -> int:
    program.engine.wait()
    sizes = [status for status in program.engine.status() if query.name in status.names]
    return sum(status.bytes + status.inner_bytes for status in sizes)


def test_closing_takes_the_rows_of_an_opening_back(closure: Program) -> None:
    """Rows are removed at once; their memory is freed as batches are merged, so it does not grow with openings."""
    closure.insert("edge", [(number, number + 1) for number in range(10, 40)])
    query = closure.query("tc(x, ?)")
    assert isinstance(query, Query)
    kept = []
    for _ in range(12):
        for answer in query.open_many([{"x": number} for number in range(40)]):
            answer.close()
        assert query._view.to_arrow().num_rows == 0
        kept.append(bytes_kept(closure, query))
    assert kept[-1] < 3 * kept[0]
    answer = query.open(x=1)
    answer.close()
    with pytest.raises(DroppedError, match="was closed"):
        answer.rows()


@pytest.mark.usefixtures("small_sweeps_are_programs")
def test_openings_run_as_compiled_programs(closure: Program) -> None:
    for question in ("tc(x, ?)", "tc(?, x)"):
        query = closure.query(question)
        query.read(x=1)
        worker = closure.engine.cluster.workers[0]  # type: ignore[attr-defined]
        flow = worker.flows[query._view.dataflow]  # type: ignore[union-attr]
        before = flow.programs_run
        assert query.read(x=2).num_rows
        assert flow.programs_run > before, question


def test_explain_says_what_is_rewritten_and_what_is_not(closure: Program) -> None:
    assert "magic sets" in closure.query("tc(x, ?)").explain()
    whole = closure.query("tc(?, ?)")
    assert isinstance(whole, WholeQuery)
    assert whole.explain() == "tc (ff): read from the relation, which is evaluated in full: no argument is bound"


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("tcc(x, ?)", 'there is no relation "tcc"'),
        ("tc(x)", '"tc" has 2 arguments, not 1'),
        ("tc(x + 1, ?)", "cannot be an argument of a query"),
        ("tc(_, _)", "selects no arguments"),
        ("tc(99999999999, ?)", "too large for a number"),
        ('tc("a", ?)', "symbol"),
    ],
)
def test_questions_that_cannot_be_asked(closure: Program, question: str, message: str) -> None:
    with pytest.raises(DatalogError, match=message.replace("(", r"\(")):
        closure.query(question)
    assert not [table for table in closure.engine.tables if "parameters" in table]


def test_values_given_with_the_question_are_constants(closure: Program) -> None:
    query = closure.query("tc(x, y)", x=1)
    assert query.read(y=3).to_pydict() == closure.query("tc(1, y)").read(y=3).to_pydict()
    assert closure.query("tc(x, ?)", x=2).open().rows() == closure.query("tc(x, ?)").open(x=2).rows()
    with pytest.raises(DatalogError, match="its parameters are y"):
        query.open(x=2, y=3)


@pytest.mark.parametrize("values", [{"y": 1}, {"x": 1, "y": 2}, {"x": "a"}, {"x": 1 << 40}, {"x": None}])
def test_values_given_with_the_question_that_do_not_fit(closure: Program, values: dict[str, Any]) -> None:
    with pytest.raises(DatalogError, match="cannot be opened with"):
        closure.query("tc(x, ?)", **values)
    assert not [table for table in closure.engine.tables if "parameters" in table]


@pytest.mark.parametrize("values", [{}, {"y": 1}, {"x": 1, "y": 2}, {"x": "a"}, {"x": 1 << 40}, {"x": None}])
def test_values_that_do_not_fit(closure: Program, values: dict[str, Any]) -> None:
    query = closure.query("tc(x, ?)")
    with pytest.raises(IkebanaError, match="cannot be opened with"):
        query.open(**values)
    assert query.read(x=2).num_rows == 2


def test_regression_questions_about_an_attribute_named_diff() -> None:
    with Engine() as engine:
        program = Program(
            engine, ".decl a(diff: number, y: number) .decl b(diff: number, y: number) b(x, y) :- a(x, y)."
        )
        program.insert("a", [(1, 2), (3, 4)])
        assert program.query("b(diff, ?)").read(diff=1).to_pydict() == {"diff": [1], "y": [2]}
        assert program.query("b(?, y)").read(y=4).to_pydict() == {"diff": [3], "y": [4]}
