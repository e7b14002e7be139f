"""Facts of small C programs, and what rules derive from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ikebana.analysis import programs
from ikebana.analysis.extraction import Extraction
from ikebana.analysis.facts import RELATIONS, AnalysisError
from tests.analysis import naive
from tests.analysis.c_programs import PROGRAMS, expected


def extracted(folder: Path, **files: str) -> Extraction:
    """The facts of some files, named without their suffix."""
    for name, source in files.items():
        (folder / f"{name}.c").write_text(source)
    extraction = Extraction(folder)
    extraction.load()
    return extraction


def derived(extraction: Extraction) -> naive.Facts:
    given = {name: {tuple(row) for row in extraction.facts(name).tolist()} for name in RELATIONS if name != "call"}
    return naive.evaluate(programs.NULLS, given)


@pytest.mark.parametrize("name", PROGRAMS)
def test_oracle_nulls_reach_what_the_comments_say(name: str, tmp_path: Path) -> None:
    source = PROGRAMS[name]
    extraction = extracted(tmp_path, program=source)
    used = derived(extraction)["null_used"]
    actual = {(extraction.place(null).line, extraction.place(use).line) for null, use in used}
    assert actual == expected(source)


def test_pointers_point_to_variables_and_memory(tmp_path: Path) -> None:
    source = """
        void *malloc(unsigned long);
        int x, *g;
        int *f(int **p) { *p = &x; return *p; }
        void h(void) { f(&g); g = malloc(4); }
    """
    extraction = extracted(tmp_path, program=source)
    places = {
        (extraction.place(pointer).name, extraction.place(target).name)
        for pointer, target in derived(extraction)["points_to"]
    }
    assert {("g", "x"), ("g", "malloc()"), ("p", "g"), ("f", "x")} <= places
    assert ("p", "x") not in places


def test_nulls_pass_between_files(tmp_path: Path) -> None:
    reader = "int *find(int); int read(void) { int *p = find(1); return *p; }"
    extraction = extracted(tmp_path, a=reader, b="int *find(int n) { return 0; }")
    ((null, use),) = derived(extraction)["null_used"]
    assert str(extraction.place(null)).startswith("b.c:1:") and str(extraction.place(use)).startswith("a.c:1:")


def test_static_functions_of_two_files_are_different(tmp_path: Path) -> None:
    bad = "static int *find(void) { return 0; } int bad(void) { return *find(); }"
    good = "int x; static int *find(void) { return &x; } int good(void) { return *find(); }"
    extraction = extracted(tmp_path, bad=bad, good=good)
    assert {extraction.place(use).function for _, use in derived(extraction)["null_used"]} == {"bad"}


def test_what_does_not_compile_is_counted_and_left_out(tmp_path: Path) -> None:
    source = '#include "missing.h"\nint f(unknown_t *p) { return q->x; }\nint g(int *p) { p = 0; return *p; }\n'
    extraction = extracted(tmp_path, program=source)
    count, first = extraction.errors["program.c"]
    assert count >= 2 and "missing.h" in first
    assert {extraction.place(use).line for _, use in derived(extraction)["null_used"]} == {3}


def test_other_allocators_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("void *pool_get(int); int *f(void) { return pool_get(4); }")
    extraction = Extraction(tmp_path, allocators=["pool_get"])
    extraction.load()
    assert len(extraction.facts("alloc")) == 1


def test_a_function_with_an_expression_nested_too_deeply_is_counted(tmp_path: Path) -> None:
    deep = "(" * 250 + "p" + ")" * 250
    source = f"int f(int *p) {{ return *{deep}; }} int g(int *p) {{ p = 0; return *p; }}"
    extraction = extracted(tmp_path, program=source)
    assert extraction.errors == {"program.c": (1, "f: an expression is nested too deeply")}
    assert {extraction.place(use).function for _, use in derived(extraction)["null_used"]} == {"g"}


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="is not a directory"):
        Extraction(tmp_path / "nowhere")


def test_without_libclang_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ikebana.analysis import libclang

    libclang.clang.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "clang", None)
    with pytest.raises(AnalysisError, match=r"pip install 'ikebana\[analysis\]'"):
        Extraction(tmp_path)
    monkeypatch.undo()
    libclang.clang.cache_clear()
