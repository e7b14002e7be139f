"""Live answers: nulls and the dereferences that they reach, as source and graphs change."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.analysis import programs
from ikebana.analysis.grammar import Grammar, edges_of
from ikebana.analysis.live import Analysis, graph_inputs, push_facts
from ikebana.datalog import Program
from ikebana.engine import Engine
from tests.analysis import naive
from tests.analysis.c_programs import PROGRAMS, expected
from tests.analysis.test_extraction import EDITS, FUNCTIONS, HEADER, write
from tests.profiles import examples

NODES = st.integers(0, 6)
EDGES = st.sets(st.tuples(NODES, NODES), max_size=8)


def test_all_programs_with_known_answers_as_the_source_grows(tmp_path: Path) -> None:
    """Each program is a file, its external names made unique; each answer is that of the program alone."""
    with Analysis(tmp_path) as analysis:
        analysis.load()
        known: set[tuple[str, int, int]] = set()
        for number, source in enumerate(PROGRAMS.values()):
            name = f"program{number}.c"
            (tmp_path / name).write_text("".join(f"#define {word} {word}{number}\n" for word in UNIQUE) + source)
            change = analysis.update(name)
            shift = len(UNIQUE)
            known |= {(name, null + shift, use + shift) for null, use in expected(source)}
            assert {(f.file, f.null.line, f.line) for f in analysis.findings()} == known
            assert not change.gone


UNIQUE = (
    "x",
    "one",
    "find",
    "read",
    "inner",
    "outer",
    "clear",
    "table",
    "both",
    "lookup",
    "start",
    "sum",
    "node",
    "pair",
)


def test_answers_name_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int *find(int);\nint read(void) {\n    int *p = find(1);\n    return *p;\n}\n")
    (tmp_path / "b.c").write_text("int *find(int n) {\n    return 0;\n}\n")
    with Analysis(tmp_path) as analysis:
        (finding,) = analysis.load().new
        assert str(finding) == "a.c:4:12: *p may be null, from b.c:2:12: result of find = NULL"
        assert analysis.nulls_reaching("a.c", 4) == analysis.nulls_reaching("a.c", 4, "*p") == [finding]
        assert analysis.nulls_reaching("a.c", 3) == analysis.nulls_reaching("a.c", 4, "*q") == []
        (tmp_path / "b.c").write_text("int x;\nint *find(int n) {\n    return &x;\n}\n")
        change = analysis.update("b.c")
        assert change.gone == [finding] and not change.new and not analysis.findings()
        assert [str(place) for place in analysis.points_to("p", file="a.c")] == ["b.c:1:5"]
        (tmp_path / "b.c").unlink()
        analysis.refresh()
        assert analysis.points_to("p") == []


@examples(1, quick=0.1)
@given(edits=EDITS, workers=st.integers(1, 3))
def test_oracle_updates_equal_analysis_from_scratch(edits: list[tuple[str, str | None]], workers: int) -> None:
    with tempfile.TemporaryDirectory() as name, Analysis(name, workers=workers) as live:
        folder = Path(name)
        write(folder, "shared.h", HEADER)
        write(folder, "a.c", FUNCTIONS[0])
        live.load()
        findings = live.findings()
        for file, text in edits:
            write(folder, file, text)
            change = live.update(file)
            assert len(live.findings()) == len(findings) + len(change.new) - len(change.gone)
            findings = live.findings()
        with Analysis(folder) as scratch:
            scratch.load()
            assert scratch.findings() == findings


# Graphs.


def rows_of(program: Program, relation: str) -> set[Any]:
    return program.relation(relation).rows()


def as_arrays(edges: dict[str, set[tuple[int, int]]]) -> dict[str, Any]:
    return {name: np.array(sorted(rows), np.int32).reshape(-1, 2) for name, rows in edges.items()}


@pytest.mark.parametrize(
    "text, inputs",
    [
        (programs.DATAFLOW, ("null", "assign")),
        (programs.POINTS_TO, ("assign", "dereference")),
        (programs.POINTS_TO_OPTIMISED, ("assign", "dereference")),
    ],
    ids=["dataflow", "points-to", "points-to optimised"],
)
@examples(1, quick=0.15)
@given(epochs=st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=4), workers=st.integers(1, 3))
def test_oracle_programs_under_changes(
    text: str, inputs: tuple[str, str], epochs: list[tuple[set[Any], set[Any]]], workers: int
) -> None:
    """Facts that exist are removed, others are added; the outputs equal naive evaluation after every epoch."""
    facts: dict[str, set[tuple[int, int]]] = {name: set() for name in inputs}
    with Engine(workers) as engine:
        sources = graph_inputs(engine, "graph", inputs)
        program = Program(engine, text, relations=sources)
        for toggled in epochs:
            chosen = dict(zip(inputs, toggled, strict=True))
            added = {name: rows - facts[name] for name, rows in chosen.items()}
            removed = {name: rows & facts[name] for name, rows in chosen.items()}
            push_facts(sources, as_arrays(added), as_arrays(removed))
            engine.advance()
            facts = {name: facts[name] ^ rows for name, rows in chosen.items()}
            answer = naive.evaluate(text, facts)
            for output in program.outputs:
                assert rows_of(program, output) == answer[output]


@pytest.mark.parametrize("grammar", [programs.POINTS_TO_GRAMMAR, Grammar.parse("A\nA a A\nB A -b")], ids=["pt", "own"])
@examples(1, quick=0.1)
@given(first=EDGES, second=EDGES)
def test_oracle_grammars(grammar: Grammar, first: set[tuple[int, int]], second: set[tuple[int, int]]) -> None:
    edges = dict(zip(grammar.labels, (first, second), strict=True))
    with Engine() as engine:
        sources = graph_inputs(engine, "graph", grammar.labels)
        program = Program(engine, grammar.datalog(), relations=sources)
        push_facts(sources, edges_of(grammar, as_arrays(edges)), {})
        engine.advance()
        answer = naive.close(grammar, edges)
        assert {name: rows_of(program, name) for name in grammar.derived} == {n: answer[n] for n in grammar.derived}


def test_optimised_points_to_uses_one_index_five_times() -> None:
    with Engine() as engine:
        program = Program(engine, programs.POINTS_TO_OPTIMISED)
        (line,) = [line for line in program.explain().splitlines() if "reaches_cell by (x), " in line]
        assert line.endswith("5 uses")
        indexes = [line for line in program.explain().splitlines() if line.strip().startswith("index ")]
        assert sum("reaches_cell" in line for line in indexes) == 1
