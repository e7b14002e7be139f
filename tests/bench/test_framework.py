"""The benchmark framework: a run leaves a verified document behind, or a clear error and nothing else."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import ikebana_bench
from ikebana.cli import main
from ikebana.machine import machine
from ikebana_bench import SCENARIOS, measure, report
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter
from ikebana_bench.units import show

DOCUMENT = {"benchmark", "claim", "paper", "parameters", "machine", "commit", "verified", "results"}
MACHINE = {"cpu", "cores", "memory_bytes", "platform", "python", "numpy", "numba"}


@dataclass(frozen=True)
class ToyParameters(Parameters):
    outcome: str = parameter("right", "how the run ends", choices=("right", "wrong", "unchecked", "stopped"))
    shared: bool = parameter(True, "share 100% of it")
    load_factor: float = parameter(0.5, "a number", minimum=0)


class Toy(Scenario[ToyParameters]):
    name = "toy"
    claim = "A toy [lower, upper) does as it is told."
    paper = "nowhere"
    parameters = ToyParameters

    def run(self, parameters: ToyParameters, progress: Progress) -> Results:
        if parameters.outcome == "stopped":
            raise KeyboardInterrupt
        if parameters.outcome != "unchecked":
            self.verify(parameters.outcome == "right", "the toy is right", detail="it was told to be wrong")
        return {"rows": np.int64(12_345), "load_ratio": parameters.load_factor}


ENDLESS = """
import sys, time
from ikebana_bench.floor import SortFloor
from ikebana.cli import main
from ikebana.machine import machine

def run(self, parameters, progress):
    print("started", flush=True)
    time.sleep(60)

SortFloor.run = run
sys.exit(main())
"""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ikebana_bench, "SCENARIOS", (Toy,))


def test_every_scenario_is_complete() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert "list" not in names
    for scenario in SCENARIOS:
        assert scenario.name == scenario.name.lower().replace(" ", "-").replace("_", "-")
        assert scenario.claim.endswith(".")
        assert scenario.paper
        scenario.parameters()


def test_sort_floor_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figure = tmp_path / "floor.json", tmp_path / "floor"
    options = ["--rows", "1_000", "--repeats", "3", "--json", str(file), "--figure", str(figure)]
    assert main(["bench", "sort-floor", *options]) == 0
    document = json.loads(file.read_text())
    assert document.keys() == DOCUMENT
    assert document["machine"].keys() == MACHINE
    assert document["parameters"] == {"rows": 1_000, "repeats": 3, "seed": 0}
    assert document["verified"] is True
    assert document["results"]["keys_per_s"] > 0
    assert document["results"]["sort_ms"].keys() == {"x", "y"}
    assert (tmp_path / "floor.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "floor.svg").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"floor.json", "floor.png", "floor.svg"}
    captured = capsys.readouterr()
    assert "sort p99" in captured.out
    assert captured.err == ""


@pytest.mark.usefixtures("toy")
def test_options_follow_from_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "toy.json"
    assert main(["bench", "toy", "--no-shared", "--load-factor", "0.25", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert document["parameters"] == {"outcome": "right", "shared": False, "load_factor": 0.25}
    assert document["results"] == {"rows": 12_345, "load_ratio": 0.25}
    assert "[lower, upper)" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "toy", "--help"])
    assert "share 100% of it (default: True)" in capsys.readouterr().out


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ("wrong", "error: verification failed: the toy is right\n  detail: it was told to be wrong"),
        ("unchecked", 'error: benchmark "toy" verified nothing'),
    ],
)
def test_failed_verification_is_an_error(
    outcome: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "toy.json"
    assert main(["bench", "toy", "--outcome", outcome, "--json", str(file)]) == 1
    document = json.loads(file.read_text())
    assert document.keys() == DOCUMENT
    assert document["verified"] is False
    assert document["results"] == {}
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.out == ""


@pytest.mark.usefixtures("toy")
def test_interrupted_run_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "toy", "--outcome", "stopped", "--json", str(tmp_path / "toy.json")]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_real_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDLESS, "bench", "sort-floor", "--json", "out.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "interrupted\n"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("option", ["--json", "--figure"])
def test_bad_destination_is_found_before_the_run(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "toy", "--outcome", "stopped", option, str(tmp_path / "absent" / "x")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_missing_matplotlib_is_found_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "toy", "--outcome", "stopped", "--figure", str(tmp_path / "x")]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_no_figure_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "toy", "--figure", str(tmp_path / "x")]) == 0
    assert "toy has no figure" in capsys.readouterr().err


def test_figure_path_may_carry_an_ending() -> None:
    assert report.figure_paths(Path("a/b.png")) == report.figure_paths(Path("a/b"))
    assert report.figure_paths(Path("v1.5")) == (Path("v1.5.png"), Path("v1.5.svg"))


@pytest.mark.parametrize("interactive", [True, False])
def test_progress_yields_every_step_and_draws_only_on_terminals(interactive: bool) -> None:
    screen = io.StringIO()
    with Progress(Console(file=screen, force_terminal=interactive)) as progress:
        assert list(progress.track("counting", range(5))) == [0, 1, 2, 3, 4]
    assert ("counting" in screen.getvalue()) is interactive


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=400), st.integers(2, 50))
def test_oracle_ccdf_counts_samples_at_or_above(samples: list[float], points: int) -> None:
    curve = measure.ccdf(samples, points)
    assert len(curve.x) <= points or len(curve.x) <= len(samples)
    assert curve.x[0] == min(samples)
    assert curve.x[-1] == max(samples)
    assert list(curve.x) == sorted(curve.x)
    for value, fraction in zip(curve.x, curve.y, strict=True):
        above = sum(sample > value for sample in samples)
        at_or_above = sum(sample >= value for sample in samples)
        assert above < round(fraction * len(samples)) <= at_or_above


def test_ccdf_keeps_the_tail_of_many_samples() -> None:
    curve = measure.ccdf(np.arange(1_000_000), points=100)
    assert len(curve.x) <= 100
    assert curve.x[-3:] == (999_997, 999_998, 999_999)


def test_stopwatch_laps_add_up() -> None:
    watch = measure.Stopwatch()
    laps = watch.lap() + watch.lap()
    assert 0 < laps <= watch.seconds


def test_sort_floor_is_for_a_count_or_for_keys() -> None:
    assert measure.numpy_sort_floor(1_000) > 0
    assert measure.numpy_sort_floor(measure.random_keys(1_000)) > 0


def test_resident_memory_is_plausible() -> None:
    assert 2**20 < measure.resident_bytes() < machine()["memory_bytes"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("wait_ms", 0.0, "0 ns"),
        ("wait_s", 7200, "120 min"),
        ("sent_per_s", 12, "12 /s"),
        ("x", 0.12345, "0.123"),
    ],
)
def test_values_are_shown_in_the_unit_that_fits(name: str, value: float, shown: str) -> None:
    assert show(name, value) == shown


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_commit_says_whether_sources_differ(tmp_path: Path) -> None:
    assert measure.commit(tmp_path) == "unknown"
    git(tmp_path, "init")
    assert measure.commit(tmp_path) == "unknown"
    git(tmp_path, "commit", "--allow-empty", "--message", "first")
    clean = measure.commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "result.json").touch()
    assert measure.commit(tmp_path) == clean
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "new.py").touch()
    assert measure.commit(tmp_path) == f"{clean}-dirty"
    assert measure.commit(tmp_path / "src") == "unknown"
