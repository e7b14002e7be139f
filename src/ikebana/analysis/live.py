"""Live answers about C source: which null may reach which dereference, kept up to date as files change.

    with Analysis("src") as analysis:
        analysis.load()
        analysis.findings()                        # every null that may be dereferenced, with file and line
        analysis.nulls_reaching("list.c", 20)      # those that are dereferenced on a line
        change = analysis.update("list.c")         # read one file again: new findings, and those that are gone

An `Extraction` keeps the facts, a Datalog program (`programs.NULLS`) the answers.

Cost: an update reads one file, pushes the difference of its facts in one epoch, and reads the findings. Deriving them
takes time in proportion to what the edit changes, not to the size of the source.

The analysis ignores the order of statements, conditions and the context of calls (`ikebana.analysis.c_source`): a
finding says that a null *may* arrive, and a test such as `if (p)` before the dereference does not make it go away.

Not guaranteed: that every dereference of null is found. Calls through pointers, pointers stored in integers and memory
copied by functions of other libraries are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from ikebana.analysis import programs
from ikebana.analysis.extraction import Difference, Extraction, Progress
from ikebana.analysis.facts import RELATIONS, Pairs, SourceLocation
from ikebana.datalog import Program, RelationView
from ikebana.engine import Engine, Input

FINDINGS = "null_used"


@dataclass(frozen=True, order=True)
class Finding:
    """A null constant that may reach a dereference."""

    file: str
    line: int
    column: int
    use: SourceLocation
    null: SourceLocation

    @staticmethod
    def of(null: SourceLocation, use: SourceLocation) -> Finding:
        return Finding(use.file, use.line, use.column, use, null)

    def __str__(self) -> str:
        return f"{self.use}: {self.use.name} may be null, from {self.null}: {self.null.name}"


@dataclass(frozen=True)
class Change:
    """What an update has changed: the facts, and the findings that are new and gone."""

    facts: Difference
    new: Sequence[Finding]
    gone: Sequence[Finding]


class Analysis:
    """The nulls of a directory of C source. A context manager."""

    def __init__(
        self,
        root: str | Path,
        arguments: Sequence[str] = (),
        *,
        allocators: Iterable[str] = (),
        output: str | Path | None = None,
        engine: Engine | None = None,
        workers: int = 1,
    ) -> None:
        """Nothing is read yet: see `load`. Arguments are those of `Extraction`.

        `engine`: the engine that maintains the answers; by default one of its own, with `workers` workers.
        """
        self.extraction = Extraction(root, arguments, allocators=allocators, output=output)
        self.engine = engine or Engine(workers)
        self._owns_engine = engine is None
        try:
            self._inputs = graph_inputs(self.engine, f"facts of {self.extraction.root}", RELATIONS)
            given = {name: source for name, source in self._inputs.items() if name != "call"}
            self.program = Program(self.engine, programs.NULLS, relations=given)
        except BaseException:
            self.close()
            raise
        self._findings: dict[tuple[int, int], Finding] = {}

    # Source.

    def load(self, jobs: int | None = None, progress: Progress | None = None) -> Change:
        """Read all files."""
        return self._apply(self.extraction.load(jobs, progress))

    def update(self, path: str | Path) -> Change:
        """Read one file again, after it was changed, created or deleted; of a header, all files that include it."""
        return self._apply(self.extraction.update(path))

    def refresh(self) -> Change:
        """Read all files that have changed."""
        return self._apply(self.extraction.refresh())

    def _apply(self, difference: Difference) -> Change:
        push_facts(self._inputs, difference.added, difference.removed)
        self.engine.advance()
        before, pairs = self._findings, self._pairs(self.program.relation(FINDINGS))
        place = self.extraction.place
        self._findings = {pair: Finding.of(place(pair[0]), place(pair[1])) for pair in pairs}
        new = sorted(finding for pair, finding in self._findings.items() if pair not in before)
        gone = sorted(finding for pair, finding in before.items() if pair not in self._findings)
        return Change(difference, new, gone)

    # Answers.

    def findings(self) -> list[Finding]:
        """Every pair of a null and a dereference that it may reach, in the order of the dereferences."""
        return sorted(self._findings.values())

    def nulls_reaching(self, file: str, line: int, name: str | None = None) -> list[Finding]:
        """The nulls that may be dereferenced on a line; only by the expression `name`, such as `*p`, if it is given."""
        return [
            finding
            for finding in self.findings()
            if (finding.file, finding.line) == (file, line) and name in (None, finding.use.name)
        ]

    def points_to(self, name: str, *, file: str | None = None, line: int | None = None) -> list[SourceLocation]:
        """The variables, functions and allocations that the pointers of a name may point to.

        `file`, `line`: only of pointers that are declared, or written, there.
        """
        nodes = set(self.extraction.find(name, file=file, line=line))
        rows = self._pairs(self.program.relation("points_to"))
        targets = {target for pointer, target in rows if pointer in nodes}
        return sorted(map(self.extraction.place, targets), key=lambda place: (place.file, place.line, place.column))

    @staticmethod
    def _pairs(relation: RelationView) -> set[tuple[int, int]]:
        table = relation.to_arrow()
        return set(zip(*(column.to_pylist() for column in table.columns), strict=True))

    # Life cycle.

    def close(self) -> None:
        """Drop the program, and the engine unless it was given."""
        if hasattr(self, "program"):
            self.program.close()
        if self._owns_engine:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# Facts as inputs of an engine: pairs of nodes, pushed as whole columns.


def graph_inputs(engine: Engine, name: str, relations: Iterable[str]) -> dict[str, Input]:
    """An input of two columns of numbers for each relation."""
    columns = [pa.field(column, pa.int32(), nullable=False) for column in ("x", "y")]
    return {relation: engine.input(f"{name}: {relation}", columns) for relation in relations}


def push_facts(inputs: Mapping[str, Input], added: Mapping[str, Pairs], removed: Mapping[str, Pairs]) -> None:
    """Add and remove facts at the open epoch. Facts are sets: what is added must be new, what is removed must exist."""
    for facts, diff in ((added, 1), (removed, -1)):
        for relation, pairs in facts.items():
            if len(pairs):
                inputs[relation].push({"x": pairs[:, 0], "y": pairs[:, 1]}, diff)
