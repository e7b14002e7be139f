"""The parser and the preprocessor: each construct as the syntax tree prints it, and errors with their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from ikebana.datalog import parse, parse_atom, parse_file, syntax
from ikebana.errors import DatalogError


def rules(text: str) -> list[str]:
    return [str(rule) for rule in parse(text).rules]


def test_facts_have_constants_of_all_kinds() -> None:
    assert rules(r'a(1, -2, 0x1F, 0b101, 3u, 1.5, "x\t\"y\"").') == [r'a(1, -2, 31, 5, 3u, 1.5, "x\t\"y\"").']


def test_operators_bind_as_in_souffle() -> None:
    assert rules("a(1 + 2 * 3 ^ 2 ^ 2 - -x band 1 bshl 2) :- b(x).") == [
        "a((((1 + (2 * (3 ^ (2 ^ 2)))) - -x) band (1 bshl 2))) :- b(x)."
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("b(x) ; c(x)", ["b(x)", "c(x)"]),
        ("b(x), (c(x) ; d(x))", ["b(x), c(x)", "b(x), d(x)"]),
        ("b(x), !(c(x) ; d(x))", ["b(x), !c(x), !d(x)"]),
        ("b(x), !(c(x), x < 3)", ["b(x), !c(x)", "b(x), x >= 3"]),
        ("b(x), !!c(x), !(x = 2)", ["b(x), c(x), x != 2"]),
        ("b(x), true", ["b(x)"]),
        ("b(x), false", []),
        ("b(x), (x) = (1 + 2)", ["b(x), x = (1 + 2)"]),
        ('b(x), !match("a", x), contains("b", x)', ['b(x), !match("a", x), contains("b", x)']),
        ("b(x), x = min(1, 2, x)", ["b(x), x = min(1, 2, x)"]),
        ("x = min y : { b(y), c(y) }", ["x = min y : { b(y), c(y) }"]),
        ("x = count : b(_)", ["x = count : { b(_) }"]),
        ("inst.b(x)", ["inst.b(x)"]),
    ],
)
def test_bodies_become_conjunctions(body: str, expected: list[str]) -> None:
    assert rules(f"a(x) :- {body}.") == [f"a(x) :- {conjunction}." for conjunction in expected]


def test_several_heads_are_several_rules() -> None:
    assert rules("a(x), b(x) :- c(x).") == ["a(x) :- c(x).", "b(x) :- c(x)."]


def test_declarations_and_directives() -> None:
    program = parse(r"""
        .type Node <: symbol
        .type Any = Node | symbol
        .decl edge, other(x: Node, n: number) brie overridable
        .input edge(IO=file, filename="e.facts", delimiter="\t"), other
        .printsize edge
        .pragma "magic-transform" "*"
        edge(x, 1) :- other(x, _).  .plan 0:(1)
    """)
    attributes = (syntax.Attribute("x", "Node"), syntax.Attribute("n", "number"))
    qualifiers = frozenset({"brie", "overridable"})
    assert program.types == (
        syntax.TypeDeclaration("Node", ("symbol",), True),
        syntax.TypeDeclaration("Any", ("Node", "symbol"), False),
    )
    assert program.relations == (
        syntax.RelationDeclaration("edge", attributes, qualifiers),
        syntax.RelationDeclaration("other", attributes, qualifiers),
    )
    assert program.directives == (
        syntax.Directive("input", "edge", (("IO", "file"), ("filename", "e.facts"), ("delimiter", "\t"))),
        syntax.Directive("input", "other"),
        syntax.Directive("printsize", "edge"),
    )


def test_components() -> None:
    program = parse("""
        .comp Graph<T> : Base<T>, Other {
            .decl node(x: T)
            .override edge
            node(x) :- edge(x, _).
            .init inner = Inner
        }
        .init g = Graph<number>
    """)
    (component,) = program.components
    assert (str(component.type), list(map(str, component.bases))) == ("Graph<T>", ["Base<T>", "Other"])
    assert component.overrides == ("edge",)
    assert [relation.name for relation in component.contents.relations] == ["node"]
    assert program.instances == (syntax.Instance("g", syntax.ComponentType("Graph", ("number",))),)


def test_positions_are_those_of_the_text() -> None:
    program = parse('a(1).\n/* two\nlines */ b(x) :-\n  c("//", x). // end\n')
    body = program.rules[1].body[0]
    assert (body.position.line, body.position.column, body.position.width) == (4, 3, len('c("//", x)'))


def test_queries_are_atoms() -> None:
    assert parse_atom("c.edge(1, _)") == syntax.Atom("c.edge", (syntax.Constant(1, "integer"), syntax.Wildcard()))


# The preprocessor.


def test_macros() -> None:
    text = """
        #define LIMIT 10
        #define PAIR(p, q) pair(p, q)
        #define NAMED(n) rel_##n
        #define TWICE(r) r(1). \\
            r(2).
        #undef UNKNOWN
        PAIR(LIMIT, "LIMIT").
        NAMED(x)(1).
        TWICE(t)
        PAIR(1,
             PAIRS).
    """
    assert rules(text) == ['pair(10, "LIMIT").', "rel_x(1).", "t(1).", "t(2).", "pair(1, PAIRS)."]


def test_conditional_parts() -> None:
    inner = "#ifdef B\na(2).\n#else\na(3).\n#endif"
    text = f"#define A\n#ifdef A\na(1).\n{inner}\n#else\na(4).\n#endif\n#ifndef A\na(5).\n#endif"
    assert rules(text) == ["a(1).", "a(3)."]
    assert [str(rule) for rule in parse("#ifdef A\na(N).\n#endif", defines={"A": "", "N": "7"}).rules] == ["a(7)."]


def test_included_files_are_relative_to_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "main.dl").write_text('#include "deep/one.dl"\na(1).')
    (tmp_path / "deep" / "one.dl").write_text('#include "two.dl"\nb(1).')
    (tmp_path / "deep" / "two.dl").write_text("c(1).\nc(.")
    with pytest.raises(DatalogError) as error:
        parse_file(tmp_path / "main.dl")
    assert error.value.position.source == str(tmp_path / "deep" / "two.dl")
    assert error.value.position.line == 2
    (tmp_path / "deep" / "two.dl").write_text("c(1).")
    assert [str(rule) for rule in parse_file(tmp_path / "main.dl").rules] == ["c(1).", "b(1).", "a(1)."]


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.dl").write_text('#include "main.dl"')
    with pytest.raises(DatalogError, match="includes itself"):
        parse_file(tmp_path / "main.dl")


# Errors.


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a([x, y]) :- b(x, y).", "records are not supported"),
        ("a(nil).", "records are not supported"),
        (".type R = [x: number]", "record types are not supported"),
        (".type T = A {} | B {x: number}", "algebraic data types are not supported"),
        ("a($A(x)) :- b(x).", "algebraic data types"),
        ("a($) :- b(x).", r"counter \$"),
        (".decl a(x: number, y: number) eqrel", "eqrel"),
        (".decl a(x: number, y: number) choice-domain x", "choice domains"),
        ("a(x) <= a(y) :- x < y.", "subsumption"),
        (".functor f(x: number): number", "user-defined functors"),
        ("a(@f(x)) :- b(x).", "user-defined functors"),
        (".lattice L<> { }", "lattices"),
        ("a(autoinc()).", "autoinc"),
        ("a(range(1, 3)).", "range"),
        (".limitsize a(n=10)", "limitsize"),
        ("a(x) :- x = count : { b(y) ; c(y) }.", "disjunction inside an aggregate"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_place(text: str, what: str) -> None:
    with pytest.raises(DatalogError, match=what) as error:
        parse("\n" + text)
    assert error.value.position.line == 2


def test_an_error_shows_the_line_and_says_what_to_do() -> None:
    with pytest.raises(DatalogError) as error:
        parse("a(x) :- b(x)\nc(y).", "p.dl")
    assert str(error.value) == (
        "unexpected 'c'\n"
        "  detail: p.dl:2:1\n"
        "          c(y).\n"
        "          ^\n"
        "  hint: end the clause before with '.', or separate literals by ','"
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a(x) :- b(x)", 13),
        ("a(f(x)) :- b(x).", 4),
        ('a("x', 3),
        ("/* x", 1),
        ("a(sum : {b(x)}).", 3),
        ("#if A > 1", 1),
    ],
)
def test_syntax_errors_have_a_place(text: str, column: int) -> None:
    with pytest.raises(DatalogError) as error:
        parse(text)
    assert (error.value.position.line, error.value.position.column) == (1, column)
