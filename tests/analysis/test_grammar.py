"""Graspan's grammars and lists of edges."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.analysis import programs
from ikebana.analysis.facts import AnalysisError
from ikebana.analysis.grammar import Grammar, Symbol, edges_of, read_edges
from tests.analysis import naive

NODES = st.integers(0, 5)
EDGES = st.sets(st.tuples(NODES, NODES), max_size=6)
SYMBOLS = st.sampled_from(["a", "-a", "b", "-b", "A", "-A", "B", "B_bar"])
PRODUCTIONS = st.lists(
    st.tuples(st.sampled_from("AB"), st.lists(SYMBOLS, max_size=2)).map(lambda line: " ".join([line[0], *line[1]])),
    min_size=1,
    max_size=5,
)


@given(lines=PRODUCTIONS, edges=st.fixed_dictionaries({"a": EDGES, "b": EDGES}))
def test_oracle_grammars_as_datalog(lines: list[str], edges: dict[str, set[tuple[int, int]]]) -> None:
    grammar = Grammar.parse("\n".join(["A a", "B b", *lines]))
    facts = naive.evaluate(grammar.datalog(), edges)
    expected = naive.close(grammar, edges)
    assert {name: facts[name] for name in grammar.derived} == {name: expected[name] for name in grammar.derived}


@given(a=EDGES, d=EDGES)
def test_oracle_the_points_to_programs_agree(a: set[tuple[int, int]], d: set[tuple[int, int]]) -> None:
    given_ = {"assign": a, "dereference": d}
    plain, optimised = (naive.evaluate(text, given_) for text in (programs.POINTS_TO, programs.POINTS_TO_OPTIMISED))
    grammar = naive.close(programs.POINTS_TO_GRAMMAR, {"a": a, "d": d})
    assert optimised["memory_alias"] == plain["memory_alias"] == grammar["MA"]
    assert optimised["value_flow"] == plain["value_flow"] == grammar["VF"]
    assert plain["value_alias"] == grammar["VA"]


@given(n=EDGES, e=EDGES)
def test_oracle_the_dataflow_programs_agree(n: set[tuple[int, int]], e: set[tuple[int, int]]) -> None:
    facts = naive.evaluate(programs.DATAFLOW, {"null": n, "assign": e})
    assert facts["reaches"] == naive.close(programs.DATAFLOW_GRAMMAR, {"n": n, "e": e})["N"]


def test_inverses_are_written_in_three_ways() -> None:
    grammar = Grammar.parse("A a\nA -a\nA a_bar\nA abar\nA crowbar  # not an inverse: there is no crow\n")
    assert [production.body[0] for production in grammar.productions] == [
        Symbol("a"),
        Symbol("a", inverse=True),
        Symbol("crowbar"),
    ]
    assert grammar.labels == ("a", "crowbar") and grammar.derived == ("A",)


def test_words_of_the_language_can_be_symbols() -> None:
    text = Grammar.parse("sum count node").datalog()
    assert "sum_(x, z) :- count_(x, y), node_(y, z)." in text


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "rules: the grammar has no productions"),
        ("A b\n\nA b c d", "rules:3: a production has at most two symbols on its right"),
        ("# comment\n-A b", "rules:2: a production cannot derive the inverse '-A'"),
        ("A b!", "rules:1: 'b!' is not a symbol"),
        ("A -", "rules:1: '' is not a symbol"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        Grammar.parse(text, "rules")


def test_a_grammar_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="cannot read grammar"):
        Grammar.read(tmp_path / "rules")


# Lists of edges.


@pytest.mark.parametrize("separator", [" ", "\t", "  ", " \t"])
def test_lists_of_edges(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "graph"
    lines = [("1", "2", "a"), ("2", "3", "-a"), ("1", "2", "a"), ("4", "5", "d"), ("6", "7", "other")]
    path.write_text("".join(f"{separator.join(line)}\n" for line in lines))
    edges = read_edges(path)
    assert {label: pairs.tolist() for label, pairs in edges.items()} == {
        "a": [[1, 2], [1, 2]],
        "-a": [[2, 3]],
        "d": [[4, 5]],
        "other": [[6, 7]],
    }
    facts = edges_of(Grammar.parse("M a d"), edges)
    assert {name: pairs.tolist() for name, pairs in facts.items()} == {"a": [[1, 2], [3, 2]], "d": [[4, 5]]}
    assert all(pairs.dtype == np.int32 for pairs in facts.values())


@pytest.mark.parametrize(
    "text, message",
    [
        (b"1 2 a\n3 4\n", "graph:2: an edge has a source, a target and a label"),
        (b"1 2 a\n3 x a\n", "graph:2: 'x' is not the number of a node"),
        (b"1 2 a\n3 4 a\n3000000000 4 a\n", "graph:3: '3000000000' is not the number of a node"),
        (b"1 2 a\n3 4 \xff\n", "graph:2: the line is not UTF-8"),
    ],
)
def test_bad_edges_name_the_line(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "graph").write_bytes(text)
    with pytest.raises(AnalysisError, match=re.escape(message)):
        read_edges(tmp_path / "graph")


def test_edges_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="cannot read edges"):
        read_edges(tmp_path / "graph")


def test_an_empty_list_of_edges(tmp_path: Path) -> None:
    (tmp_path / "graph").write_text("")
    assert read_edges(tmp_path / "graph") == {}
