"""What a benchmark is.

A benchmark is a subclass of `Scenario`. It states a claim and where in the paper the claim is made,
declares its parameters once (command-line options, defaults and the JSON document follow from them),
and has a `run` that measures, verifies what it measured, and returns metrics. `floor.py` is an example.

Verification is part of the run: `self.verify(...)` compares with an answer found in another way, outside
of what is timed. The first one that does not hold ends the run; a run that verifies nothing is refused.

A metric's name ends in its unit (see `units`): `update_p99_ms`, `updates_per_s`, `resident_bytes`. Its
value is a number, or a `Series`, which goes to the figure instead of the table.
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
    """A benchmark's answer is not the one found independently, or it compared none."""


@dataclass(frozen=True)
class Parameters:
    """Base of a benchmark's parameters: a frozen dataclass whose fields are made by `parameter`."""


def parameter(default: T, help: str, *, minimum: float | None = None, choices: Sequence[T] = ()) -> T:
    """A field of `Parameters`: the option `--its-name`, of the default's type.

    A bool gives `--its-name` and `--no-its-name`. `minimum` bounds a number; `choices` lists all values.
    """
    metadata = {"help": help, "minimum": minimum, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Figure:
    """One panel: a curve for each label, or points of it. Scales are "log" or "linear"."""

    title: str
    x_label: str
    curves: Mapping[str, Series]
    y_label: str = "fraction at or above"
    x_scale: str = "log"
    y_scale: str = "log"
    points: bool = False


class Scenario(ABC, Generic[P]):
    """A benchmark; one instance serves one run."""

    name: ClassVar[str]
    claim: ClassVar[str]
    paper: ClassVar[str]
    parameters: ClassVar[type[Parameters]]

    def __init__(self) -> None:
        self.verifications = 0

    @abstractmethod
    def run(self, parameters: P, progress: Progress) -> Results:
        """Measure, verify, and return the metrics."""

    def verify(self, holds: object, what: str, *, detail: str = "") -> None:
        """Go on if `holds`; otherwise the run has failed to establish `what`, and ends here."""
        if not holds:
            hint = "the figures of this run mean nothing: find the cause before measuring again"
            raise VerificationError(f"verification failed: {what}", detail=detail, hint=hint)
        self.verifications += 1

    def figures(self, results: Results) -> Sequence[Figure]:
        """What `--figure` draws; unless overridden, all series of one unit share a panel."""
        panels: dict[str, dict[str, Series]] = {}
        for name, value in results.items():
            if isinstance(value, Series):
                label, unit = axis_label(name)
                panels.setdefault(unit, {})[label] = value
        return [Figure(self.name, unit, curves) for unit, curves in panels.items()]


AnyScenario: TypeAlias = Scenario[Any]
