"""The command `ikebana datalog`: results, watched files, and the prompt."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from ikebana import Engine
from ikebana.cli import main
from ikebana.datalog import command, load
from ikebana.errors import DatalogError

PROGRAM = """
.decl edge(x: number, y: number)
.input edge
.decl tc(x: number, y: number)
.output tc
tc(x, y) :- edge(x, y).
tc(x, z) :- tc(x, y), edge(y, z), LIMIT.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tc.dl").write_text(PROGRAM)
    (tmp_path / "edge.facts").write_text("1\t2\n2\t3\n")
    return tmp_path


def test_results_are_those_of_the_facts(folder: Path) -> None:
    arguments = ["datalog", str(folder / "tc.dl"), "-F", str(folder), "-D", str(folder / "out"), "-M", "LIMIT=true"]
    assert main(arguments) == 0
    assert (folder / "out" / "tc.csv").read_text() == "1\t2\n1\t3\n2\t3\n"


def test_errors_go_to_standard_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datalog", str(folder / "tc.dl"), "-F", str(folder)]) == 1
    assert "tc.dl:7:" in capsys.readouterr().err
    (folder / "edge.facts").write_text("1\n")
    assert main(["datalog", str(folder / "tc.dl"), "-F", str(folder), "-M", "LIMIT=true"]) == 1
    assert "edge.facts, line 1: it has 1 columns" in capsys.readouterr().err
    assert main(["datalog", str(folder / "none.dl")]) == 1


def test_plans_are_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datalog", str(folder / "tc.dl"), "-M", "LIMIT=true", "--explain"]) == 0
    assert "edge(y, z) by (x): index 2" in capsys.readouterr().out


def test_the_prompt_inserts_deletes_and_queries(folder: Path) -> None:
    lines = [
        *("insert edge(3, 4).", "query tc(1, _)", "delete edge(1, 2)", "query tc(x, x)", "insert edge(3, 4)"),
        *(
            "insert edge(1, x)",
            "insert edg(1, 2)",
            "wrong",
            "why tc(2, 4)",
            "why_not tc(1, 2)",
            "query tc(1 + 1, _)",
            "quit",
            "insert edge(7, 7)",
        ),
    ]
    out = io.StringIO()
    arguments = argparse.Namespace(
        file=folder / "tc.dl",
        fact_dir=folder,
        output_dir=folder,
        include_dir=[],
        macro=["LIMIT=true"],
        jobs=1,
        no_warn=False,
        explain=False,
        watch=False,
        prompt=True,
    )
    command.run(arguments, out, io.StringIO("\n".join(lines)))
    results = [line for line in out.getvalue().splitlines() if not line.startswith(" ")]
    assert results == [
        *("+ tc(1, 4)", "+ tc(2, 4)", "+ tc(3, 4)"),
        *("tc(1, 2)", "tc(1, 3)", "tc(1, 4)"),
        *("- tc(1, 2)", "- tc(1, 3)", "- tc(1, 4)"),
        'error: variable "x" is not grounded',
        'error: there is no relation "edg"',
        "error: there is no command 'wrong'",
        "tc(2, 4)    tc(x, z) :- tc(x, y), edge(y, z).",
        *("├─ tc(2, 3)    tc(x, y) :- edge(x, y).", "│  └─ edge(2, 3)", "└─ edge(3, 4)"),
        "tc(1, 2) was not inserted, and no rule derives it:",
        "error: a query has constants and variables only",
    ]


def test_only_what_differs_in_a_changed_file_is_applied(folder: Path) -> None:
    with Engine() as engine:
        program = load(engine, folder / "tc.dl", defines={"LIMIT": "true"})
        facts = command.WatchedFacts(program, folder)
        assert facts.update() and not facts.update()
        changes = command.ResultChanges(program)
        (folder / "edge.facts").write_text("2\t3\n3\t4\n")
        assert facts.update()
        assert list(changes.lines()) == ["- tc(1, 2)", "- tc(1, 3)", "+ tc(2, 4)", "+ tc(3, 4)"]
        (folder / "edge.facts").write_text("2\t3\n3\tfour\n")
        with pytest.raises(DatalogError, match="not valid"):
            facts.update()
        assert not facts.update() and not list(changes.lines())
        (folder / "edge.facts").write_text("")
        assert facts.update()
        assert list(changes.lines()) == ["- tc(2, 3)", "- tc(2, 4)", "- tc(3, 4)"]
