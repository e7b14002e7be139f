"""Extracting again: the difference of an edit, and the same facts as from scratch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.analysis.extraction import Difference, Extraction
from ikebana.analysis.facts import NODE_COLUMNS, RELATIONS, AnalysisError
from tests.profiles import examples

HEADER = "struct node { struct node *next; int *value; };\nint *get(int **p);\nextern int *shared;\n"
INLINE = "static inline int *first(int **p) { return *p; }\n"
HEADERS = (HEADER, HEADER + INLINE, HEADER + INLINE.replace("return *p", "*p = 0; return *p"))

FUNCTIONS = (
    "int *get(int **p) { return *p; }",
    "int *get(int **p) { *p = 0; return *p; }",
    "static int use(int *p) { int *q = p; return *q; }",
    "\n\nstatic int use(int *p) { int *q = p; q = 0; return *q + *p; }",
    "int walk(struct node *n) { while (n) n = n->next; return *n->value; }",
    "int *shared = 0;",
    "int read(void) { int *local = shared; return *get(&local); }",
    "int read(void) { return *get(&shared); }",
)

SOURCES = st.lists(st.sampled_from(FUNCTIONS), max_size=4, unique=True)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a.c", "b.c"]), st.none() | SOURCES.map("\n".join)),
        st.tuples(st.just("shared.h"), st.sampled_from(HEADERS)),
    ),
    min_size=1,
    max_size=4,
)


def write(folder: Path, name: str, text: str | None) -> None:
    if text is None:
        (folder / name).unlink(missing_ok=True)
    else:
        (folder / name).write_text(text if name.endswith(".h") else f'#include "shared.h"\n{text}\n')


def changed(facts: dict[str, set[tuple[int, int]]], difference: Difference) -> dict[str, set[tuple[int, int]]]:
    """Facts after a difference, which adds and removes only what was not there and what was."""
    result = {}
    for relation, rows in facts.items():
        added, removed = (set(map(tuple, d[relation].tolist())) for d in (difference.added, difference.removed))
        assert removed <= rows and not added & rows
        result[relation] = (rows | added) - removed
    return result


def numbered(extraction: Extraction) -> dict[str, set[tuple[int, int]]]:
    return {relation: set(map(tuple, extraction.facts(relation).tolist())) for relation in RELATIONS}


@examples(1, quick=0.5)
@given(edits=EDITS)
def test_oracle_updates_equal_extraction_from_scratch(edits: list[tuple[str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, "shared.h", HEADER)
        write(folder, "a.c", FUNCTIONS[0])
        live = Extraction(folder)
        facts = changed({relation: set() for relation in RELATIONS}, live.load())
        for file, text in edits:
            write(folder, file, text)
            facts = changed(facts, live.update(file))
            assert facts == numbered(live)
        scratch = Extraction(folder)
        scratch.load()
        assert live.keyed_facts() == scratch.keyed_facts()
        assert live.errors == scratch.errors
        for key in {key for rows in live.keyed_facts().values() for row in rows for key in row}:
            numbers = live.nodes.find(key), scratch.nodes.find(key)
            assert None not in numbers and live.place(numbers[0] or 0) == scratch.place(numbers[1] or 0)


def test_an_edit_of_one_function_leaves_the_others_alone(tmp_path: Path) -> None:
    before = "int f(int *p) { return *p; }\nint g(int *p) { int *q = p; return *q; }\n"
    (tmp_path / "a.c").write_text(before)
    extraction = Extraction(tmp_path)
    extraction.load()
    (tmp_path / "a.c").write_text("// A comment.\n\n" + before)
    assert len(extraction.update("a.c")) == 0
    assert {extraction.place(node).line for node in extraction.find("q")} == {4}
    (tmp_path / "a.c").write_text(before.replace("return *p;", "p = 0; return *p;"))
    difference = extraction.update("a.c")
    assert len(difference) == len(difference.added["null"]) == 1


def test_files_that_changed_are_read_again(tmp_path: Path) -> None:
    for name, text in (("shared.h", HEADERS[0]), ("a.c", FUNCTIONS[0]), ("b.c", FUNCTIONS[2])):
        write(tmp_path, name, text)
    extraction = Extraction(tmp_path)
    extraction.load()
    assert len(extraction.refresh()) == 0
    write(tmp_path, "shared.h", HEADERS[2])
    write(tmp_path, "c.c", FUNCTIONS[5])
    (tmp_path / "b.c").unlink()
    assert len(extraction.refresh()) > 0
    scratch = Extraction(tmp_path)
    scratch.load()
    assert extraction.keyed_facts() == scratch.keyed_facts()


def test_nodes_keep_their_numbers_in_the_output(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "output"
    source.mkdir()
    (source / "b.c").write_text("int f(int *p) { int *q = p; return *q; }\n")
    first = Extraction(source, output=output)
    first.load()
    first.write(output)
    (source / "a.c").write_text("int *get(int **p) { return *p; }\n")
    second = Extraction(source, output=output)
    second.load()
    second.write(output)
    assert second.nodes.keys[: len(first.nodes)] == first.nodes.keys
    assigned = np.loadtxt(output / "assign.facts", dtype=np.int32, delimiter="\t", ndmin=2)
    assert (assigned == second.facts("assign")).all()
    rows = [line.split("\t") for line in (output / "nodes.facts").read_text().splitlines()]
    assert [row[0] for row in rows] == [str(number) for number in range(len(second.nodes))]
    assert all(len(row) == len(NODE_COLUMNS) for row in rows)
    ((q,),) = [second.find("q")]
    assert rows[q][1:7] == ["variable", "q", "f", "b.c", "1", "22"]


def test_a_damaged_table_of_nodes_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "nodes.facts").write_text("0\tvariable\tp\tf\ta.c\t1\t2\tvariable f: p #1\n2\tvariable\n")
    with pytest.raises(AnalysisError, match=r"nodes\.facts:2: this is not a line of a table of nodes"):
        Extraction(tmp_path, output=tmp_path)


def test_files_outside_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="is not below"):
        Extraction(tmp_path).update("../other.c")


def test_invariance_processes(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.c").write_text(f"int *f{number}(int *p) {{ return p; }}")
    one, two = Extraction(tmp_path), Extraction(tmp_path)
    names: list[str] = []
    one.load(jobs=1)
    two.load(jobs=2, progress=lambda name, done, total: names.append(f"{name} {done}/{total}"))
    assert one.keyed_facts() == two.keyed_facts()
    assert names == [f"{number}.c {number + 1}/9" for number in range(9)]
    os.remove(tmp_path / "0.c")
    assert len(one.load().removed["assign"]) == 1
