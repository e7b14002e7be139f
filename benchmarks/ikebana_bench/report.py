"""The results of a benchmark as a table, a JSON document and a figure.

Files are written atomically: first to a temporary file in the same folder, which is then renamed.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from ikebana.errors import IkebanaError
from ikebana.machine import machine
from ikebana_bench.measure import Series, commit
from ikebana_bench.scenario import AnyScenario, Figure, Parameters, Results
from ikebana_bench.units import show, split

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FIGURE_SUFFIXES = (".png", ".svg")


@dataclass(frozen=True)
class Outcome:
    """A finished run: its metrics, and whether they were verified."""

    scenario: AnyScenario
    parameters: Parameters
    verified: bool
    results: Results


def table(outcome: Outcome) -> Table:
    """Return a table of the numeric metrics, in the order of the results."""
    shown = Table("metric")
    shown.add_column("value", justify="right")
    for name, value in outcome.results.items():
        if not isinstance(value, Series):
            shown.add_row(split(name)[0], show(name, value))
    return shown


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON document of a run."""
    scenario = outcome.scenario
    return {
        "benchmark": scenario.name,
        "claim": scenario.claim,
        "paper": scenario.paper,
        "parameters": asdict(outcome.parameters),
        "machine": machine(),
        "commit": commit(),
        "verified": outcome.verified,
        "results": dict(outcome.results),
    }


def write_json(outcome: Outcome, path: Path) -> None:
    text = json.dumps(document(outcome), indent=2, default=_plain, allow_nan=False) + "\n"
    _write(path, lambda temporary: temporary.write_text(text))


def _plain(value: object) -> object:
    if isinstance(value, Series):
        return asdict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a metric must be a number or a Series, not {type(value).__name__}")


def figure_paths(path: Path) -> tuple[Path, ...]:
    """Return PATH.png and PATH.svg, whether or not PATH already has one of these suffixes."""
    stem = path.with_suffix("") if path.suffix in FIGURE_SUFFIXES else path
    return tuple(stem.with_name(stem.name + suffix) for suffix in FIGURE_SUFFIXES)


def require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise IkebanaError(
            "cannot draw a figure",
            detail="matplotlib is not installed",
            hint="install it with `pip install matplotlib`, or omit --figure",
        )


def write_figure(figures: Sequence[Figure], path: Path) -> None:
    """Write all panels side by side, as PNG and as SVG."""
    import matplotlib  # an optional dependency, needed only for --figure

    with matplotlib.rc_context({"axes.formatter.min_exponent": 4}):  # label axes 52 instead of 5.2 x 10^1
        canvas = _draw(figures)
        for target in figure_paths(path):
            _write(target, partial(canvas.savefig, format=target.suffix[1:], dpi=150))


def _draw(figures: Sequence[Figure]) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6 * len(figures), 4), layout="constrained")
    for axes, figure in zip(canvas.subplots(1, len(figures), squeeze=False)[0], figures, strict=True):
        for label, curve in figure.curves.items():
            style = {"linestyle": "", "marker": "o"} if figure.points else {"drawstyle": "steps-pre"}
            axes.plot(curve.x, curve.y, label=label, **style)
        axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
        axes.set(xscale=figure.x_scale, yscale=figure.y_scale)
        if figure.y_scale == "linear":
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    return canvas


def _write(path: Path, fill: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fill(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
