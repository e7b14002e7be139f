"""The commands `ikebana analysis`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ikebana.analysis import command
from ikebana.cli import main

BAD = "int f(int *p) {\n    p = 0;\n    return *p;\n}\n"


def test_extract_writes_files_and_shows_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.c").write_text('#include "missing.h"\n' + BAD)
    assert main(["analysis", "extract", str(tmp_path), "-o", str(tmp_path / "facts")]) == 0
    captured = capsys.readouterr()
    assert "null" in captured.out and "1 files do not compile completely (1 errors)" in captured.err
    assert (tmp_path / "facts" / "null.facts").read_text().count("\n") == 1


def test_headers_and_macros_are_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "void.h").write_text("#define NOTHING 0\n")
    (tmp_path / "a.c").write_text('#include "void.h"\nint f(int *p) { p = VALUE; return *p; }\n')
    options = ["-I", str(tmp_path / "include"), "-D", "VALUE=NOTHING"]
    assert main(["analysis", "run", str(tmp_path), *options]) == 0
    captured = capsys.readouterr()
    assert "a.c:2" in captured.out and "do not compile" not in captured.err


def test_run_shows_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.c").write_text(BAD)
    assert main(["analysis", "run", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "a.c:3:12" in out and "a.c:2:9" in out and "p = NULL" in out
    (tmp_path / "a.c").write_text("int f(int *p) { return *p; }\n")
    assert main(["analysis", "run", str(tmp_path)]) == 0
    assert "no null reaches a dereference" in capsys.readouterr().out


def test_watch_shows_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.c").write_text(BAD)
    steps = iter([lambda: (tmp_path / "b.c").write_text(BAD.replace("f(", "g(")), (tmp_path / "a.c").unlink])

    def sleep(seconds: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))  # other threads of this process sleep as well
    assert main(["analysis", "run", str(tmp_path), "--watch"]) == 130
    changes = [line for line in capsys.readouterr().out.splitlines() if line[:2] in ("+ ", "- ")]
    assert changes == [
        "+ b.c:3:12: *p may be null, from b.c:2:9: p = NULL",
        "- a.c:3:12: *p may be null, from a.c:2:9: p = NULL",
    ]


def test_graspan_derives_edges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules").write_text("N n\nN N e\n")
    (tmp_path / "graph").write_text("1 2 n\n2 3 e\n4 3 -e\n7 8 N\n8 9 e\n1 1 z\n")
    arguments = [str(tmp_path / "rules"), str(tmp_path / "graph"), "-o", str(tmp_path / "out")]
    assert main(["analysis", "graspan", *arguments]) == 0
    assert "the grammar has no symbol z" in capsys.readouterr().err
    rows = sorted((tmp_path / "out" / "N.csv").read_text().split("\n"))
    assert rows == ["", "1\t2", "1\t3", "1\t4", "7\t8", "7\t9"]


def test_a_directory_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analysis", "run", str(tmp_path / "nowhere")]) == 1
    assert "is not a directory" in capsys.readouterr().err
