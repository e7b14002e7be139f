"""Facts files and results, in Soufflé's formats: what is read and written, and errors with file and line."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from ikebana import Engine
from ikebana.datalog import load
from ikebana.errors import DatalogError


def read(tmp_path: Path, declaration: str, options: str, data: bytes, filename: str = "a.facts") -> set[Any]:
    (tmp_path / filename).write_bytes(data)
    with Engine() as engine:
        program = load(engine, f"{declaration}\n.input a{options}")
        program.read_inputs(tmp_path)
        return program.relation("a").rows()


PAIR = ".decl a(x: number, s: symbol)"


@pytest.mark.parametrize(
    ("declaration", "options", "data", "expected"),
    [
        (PAIR, "", "1\tone\n-2\ttwo words\n3\t\n", {(1, "one"), (-2, "two words"), (3, "")}),
        (PAIR, "", '1\t"quoted"\n2\té\n2\té', {(1, '"quoted"'), (2, "é")}),
        (PAIR, "", "1\tone\r\n2\ttwo\r\n", {(1, "one"), (2, "two")}),
        (PAIR, "", "", set()),
        (PAIR, '(delimiter=",")', "1,one\n", {(1, "one")}),
        (PAIR, '(delimiter="::")', "1::one\n0x10::b\n", {(1, "one"), (16, "b")}),
        (PAIR, "(headers=true)", "x\ts\n1\tone\n", {(1, "one")}),
        (PAIR, "(headers=true)", "x\ts\n", set()),
        (PAIR, "(rfc4180=true)", '1,"a ""b"", c"\n2,d\n', {(1, 'a "b", c'), (2, "d")}),
        (PAIR, '(rfc4180=true, delimiter="||")', '1||"a""||"\n2||d\n', {(1, 'a"||'), (2, "d")}),
        (PAIR, '(columns="2:0")', "one\t-\t1\textra\n", {(1, "one")}),
        (".decl a(s: symbol)", "", "one\n\ntwo\n", {("one",), ("",), ("two",)}),
        (".decl a(x: unsigned, f: float)", "", "4294967295\t1.5\n0\t-2\n", {(4294967295, 1.5), (0, -2.0)}),
        (".decl a()", "", "()\n", {()}),
        (".decl a()", "", "", set()),
    ],
)
def test_facts_are_read(tmp_path: Path, declaration: str, options: str, data: str, expected: set[Any]) -> None:
    assert read(tmp_path, declaration, options, data.encode()) == expected


def test_compressed_facts_and_other_names(tmp_path: Path) -> None:
    data = gzip.compress(b"1\tone\n")
    assert read(tmp_path, PAIR, '(IO=file, filename="b.gz")', data, "b.gz") == {(1, "one")}


@pytest.mark.parametrize(
    ("options", "data", "line", "problem"),
    [
        ("", b"1\tone\n2\n", 2, "it has 1 columns, but a(x: number, s: symbol) has 2"),
        ("", b"1\tone\n2\ttwo\tthree\n", 2, "it has 3 columns"),
        ("", b"1\tone\n\n", 2, "it has 1 columns"),
        ("", b"1\tone\nx\ttwo\n", 2, "column 1 is 'x', which is not a number"),
        ("", b"1\tone\n1.5\ttwo\n", 2, "column 1 is '1.5', which is not a number"),
        ("", b"1\tone\n2147483648\ttwo\n", 2, "out of range"),
        ("", b"1\tone\n2\t\xff\n", 2, "it is not UTF-8"),
        ("(headers=true)", b"x\ts\n1\tone\ny\ttwo\n", 3, "column 1 is 'y'"),
        ("(rfc4180=true)", b'1,"one\n', 1, "a quote is not closed"),
    ],
)
def test_errors_name_file_and_line_and_nothing_is_applied(
    tmp_path: Path, options: str, data: bytes, line: int, problem: str
) -> None:
    (tmp_path / "a.facts").write_bytes(data)
    (tmp_path / "good.facts").write_text("1\n")
    with Engine() as engine:
        program = load(engine, f".decl good(x: number)\n.input good\n{PAIR}\n.input a{options}")
        with pytest.raises(DatalogError) as error:
            program.read_inputs(tmp_path)
        assert error.value.detail.startswith(f"{tmp_path / 'a.facts'}, line {line}: ")
        assert problem in error.value.detail
        assert not program.relation("good").rows() and not program.relation("a").rows()


def test_a_missing_file_is_an_error_unless_it_may_be_missing(tmp_path: Path) -> None:
    with Engine() as engine:
        program = load(engine, f"{PAIR}\n.input a")
        with pytest.raises(DatalogError, match="cannot read the facts"):
            program.read_inputs(tmp_path)
        program.read_inputs(tmp_path, missing_ok=True)


@pytest.mark.parametrize("option", ["IO=sqlite", "IO=json", "unknown=1"])
def test_options_that_are_not_supported_are_refused(tmp_path: Path, option: str) -> None:
    with Engine() as engine, pytest.raises(DatalogError, match="not supported"):
        load(engine, f"{PAIR}\n.input a({option})").read_inputs(tmp_path)


RESULTS = """
.decl a(x: number, s: symbol, f: float)  a(10, "b", 1).  a(9, "c\\"d", 0.25).
.decl none()  .decl some()  some().
"""


@pytest.mark.parametrize(
    ("options", "filename", "expected"),
    [
        ("", "a.csv", '9\tc"d\t0.25\n10\tb\t1\n'),
        ('(delimiter="; ")', "a.csv", '9; c"d; 0.25\n10; b; 1\n'),
        ("(headers=true)", "a.csv", 'x\ts\tf\n9\tc"d\t0.25\n10\tb\t1\n'),
        ('(filename="deep/b.txt")', "deep/b.txt", '9\tc"d\t0.25\n10\tb\t1\n'),
        ("(rfc4180=true)", "a.csv", '9,"c""d",0.25\n10,"b",1\n'),
    ],
)
def test_results_are_written(tmp_path: Path, options: str, filename: str, expected: str) -> None:
    with Engine() as engine:
        load(engine, f"{RESULTS}.output a{options}").write_outputs(tmp_path)
    assert (tmp_path / filename).read_text().replace('"0.25"', "0.25").replace('"1"', "1") == expected


def test_results_on_standard_output(tmp_path: Path) -> None:
    out = io.StringIO()
    with Engine() as engine:
        program = load(
            engine, f"{RESULTS}.output some(IO=stdout)\n.printsize a\n.output none\n.output a(compress=true)"
        )
        program.write_outputs(tmp_path, out)
    assert out.getvalue() == "---------------\nsome\n===============\n()\n===============\na\t2\n"
    assert (tmp_path / "none.csv").read_text() == ""
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).decode() == '9\tc"d\t0.25\n10\tb\t1\n'
