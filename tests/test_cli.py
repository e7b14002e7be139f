"""The command line: what it answers, where it prints, how it exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ikebana
from ikebana import kernels
from ikebana.cli import main
from ikebana.kernels.cache import cache_directory
from ikebana.spark import class_archive
from ikebana_bench import SCENARIOS, command


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"ikebana {ikebana.__version__}\n"


def test_info_shows_versions_and_cores(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert ikebana.__version__ in out
    for name in ("cores", "system", "java", "pyspark", "pyarrow", "pandas", "numba"):
        assert name in out
    assert out.count("numpy") == 1 and "not installed" not in out


@pytest.mark.parametrize(
    ("compiled", "archive", "first", "second"),
    [
        (3, Path("/cache/classes"), "compiled 3 kernels: ", "Spark's classes are archived: /cache/classes"),
        (0, None, "all kernels were compiled before: ", "this Java cannot archive Spark's classes"),
    ],
)
def test_warm_says_what_it_has_written_and_where(
    compiled: int,
    archive: Path | None,
    first: str,
    second: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(kernels, "load", lambda: compiled)
    monkeypatch.setattr(class_archive, "write", lambda: archive)
    assert main(["warm"]) == 0
    assert capsys.readouterr().out == f"{first}{cache_directory()}\n{second}\n"


def test_the_package_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "ikebana", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"ikebana {ikebana.__version__}\n"


@pytest.mark.parametrize("arguments", [["bench", "list"], ["bench"]])
def test_bench_list_names_claims(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "sort-floor" in out
    assert "physical" in out


def test_unknown_benchmark_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sort-flor"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith('error: there is no benchmark "sort-flor"\n')
    assert 'did you mean "sort-floor"?' in captured.err


def test_a_family_of_benchmarks_runs_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(command, "run", lambda scenario, options, out, err: ran.append(scenario.name))
    assert main(["bench", "ingest"]) == 0
    assert ran == [scenario.name for scenario in SCENARIOS if scenario.name.startswith("ingest-")] and len(ran) > 1
    assert main(["bench", "ingest", "--workers", "1"]) == 2
    assert "pass the options to one of: ingest-load" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "many"], 'argument --rows: "many" is not an integer'),
        (["--rows", "0"], "argument --rows: 0 is less than 1"),
        (["--rowz", "5"], "unrecognized arguments: --rowz"),
    ],
)
def test_bad_option_is_refused(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "sort-floor", *options])
    assert message in capsys.readouterr().err


def test_benchmark_help_shows_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "sort-floor", "--help"])
    out = capsys.readouterr().out
    assert "--rows" in out
    assert "--figure PATH" in out
