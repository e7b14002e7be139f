"""The base class of benchmarks, and their parameters, figures and verification.

A benchmark is a subclass of `Scenario`. It states a claim and the place in the paper that makes the claim,
declares its parameters once (command-line options, defaults and the JSON document follow from them), and
implements `run`, which measures, verifies the results and returns metrics. See `floor.py` for an example.

Every run verifies its results: `self.verify(...)` checks them against an independently computed answer,
outside the timed section. The first failed verification ends the run. A run without any verification fails.

The name of a metric ends in its unit (see `units`): `update_p99_ms`, `updates_per_s`, `resident_bytes`. The
value is a number, which is printed in the table, or a `Series`, which is drawn in the figure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from ikebana.errors import IkebanaError
from ikebana_bench.measure import Series
from ikebana_bench.progress import Progress
from ikebana_bench.units import axis_label

T = TypeVar("T", bool, int, float, str)
P = TypeVar("P", bound="Parameters")

Results: TypeAlias = Mapping[str, float | Series]


class VerificationError(IkebanaError):
    """A benchmark's result differs from the independently computed one, or the benchmark verified nothing."""


@dataclass(frozen=True)
class Parameters:
    """Base class of a benchmark's parameters: a frozen dataclass whose fields are created by `parameter`."""


def parameter(default: T, help: str, *, minimum: float | None = None, choices: Sequence[T] = ()) -> T:
    """Return a field of `Parameters`, which becomes the command-line option `--field-name`.

    The type of the option is the type of `default`. A bool becomes `--field-name` and `--no-field-name`. `minimum`
    is the least value of a number; `choices` lists the allowed values.
    """
    metadata = {"help": help, "minimum": minimum, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Figure:
    """One panel of a figure: a labelled curve for each series, or its points. Scales are "log" or "linear"."""

    title: str
    x_label: str
    curves: Mapping[str, Series]
    y_label: str = "fraction at or above"
    x_scale: str = "log"
    y_scale: str = "log"
    points: bool = False


class Scenario(ABC, Generic[P]):
    """A benchmark. Each run uses a new instance."""

    name: ClassVar[str]
    claim: ClassVar[str]
    paper: ClassVar[str]
    parameters: ClassVar[type[Parameters]]

    def __init__(self) -> None:
        self.verifications = 0

    @abstractmethod
    def run(self, parameters: P, progress: Progress) -> Results:
        """Measure, verify the results, and return the metrics."""

    def verify(self, holds: object, what: str, *, detail: str = "") -> None:
        """Raise `VerificationError` unless `holds`. `what` is the statement that is verified."""
        if not holds:
            hint = "the measurements of this run are invalid: fix the cause before you measure again"
            raise VerificationError(f"verification failed: {what}", detail=detail, hint=hint)
        self.verifications += 1

    def figures(self, results: Results) -> Sequence[Figure]:
        """Return the panels that `--figure` draws. By default, all series of one unit share a panel."""
        panels: dict[str, dict[str, Series]] = {}
        for name, value in results.items():
            if isinstance(value, Series):
                label, unit = axis_label(name)
                panels.setdefault(unit, {})[label] = value
        return [Figure(self.name, unit, curves) for unit, curves in panels.items()]


AnyScenario: TypeAlias = Scenario[Any]
