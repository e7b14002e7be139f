"""Registers of programs: what operators know of each other's rows while a program is written.

`Rows` is the register of a stream: columns by name, each a slot of values and one of nulls. `Lanes` is that of the
fresh rows of an arrangement, `IndexRegister` the whole arrangement. Columns of stored rows are read from lanes and
payload when an operator asks for them (`StoredColumns`): what nobody asks for costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ikebana.encoding import Schema
from ikebana.operators.changes import Changes, Fields

if TYPE_CHECKING:
    from ikebana.operators.program import ProgramBuilder


@dataclass(frozen=True, slots=True)
class ColumnSlots:
    """The slots of a column: of its values, and of its null flags (slot 0 if it is never null)."""

    value: int
    null: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The register of a stream."""

    count: int
    fields: Fields
    columns: Mapping[str, ColumnSlots]
    diffs: tuple[int, ...]

    @property
    def slots(self) -> list[int]:
        """The slots of all columns, in the order of the fields."""
        pairs = (self.columns[field.name] for field in self.fields)
        return [slot for column in pairs for slot in (column.value, column.null)]

    def select(self, names: Iterable[str]) -> Rows:
        """The same rows with some columns."""
        wanted = set(names)
        fields = tuple(field for field in self.fields if field.name in wanted)
        return Rows(self.count, fields, {field.name: self.columns[field.name] for field in fields}, self.diffs)


class StoredColumns(Mapping[str, ColumnSlots]):
    """The columns of stored rows: some are known, others are read once somebody asks for them.

    `trace` and `references` say which rows of which trace have the payload, if it is not known.
    """

    def __init__(
        self,
        program: ProgramBuilder,
        schema: Schema,
        count: int,
        lanes: tuple[int, int],
        known: Mapping[str, ColumnSlots],
        trace: int = -1,
        references: int = 0,
    ) -> None:
        self._program, self._schema, self._count, self.lanes = program, schema, count, lanes
        self._trace, self._references = trace, references
        self._known: MutableMapping[str, ColumnSlots] = dict(known)

    def __getitem__(self, name: str) -> ColumnSlots:
        if name not in self._known:
            with self._program.at_level_of(self._count):
                self._known[name] = self._read(name)
            self._program.note_read(self._known, name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schema.names)

    def __len__(self) -> int:
        return len(self._schema.names)

    def _read(self, name: str) -> ColumnSlots:
        first = 0  # payload column of the side
        for side, lane in zip((self._schema.key, self._schema.val), self.lanes, strict=True):
            names = [field.name for field in side.fields]
            if name in names:
                if side.exact:
                    return self._program.unpacked(self._count, lane, side, name)
                at = names.index(name)
                return self._program.loaded(self._count, self._trace, first + at, self._references, side.fields[at])
            first += side.payload_columns
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The register of an arrangement's fresh rows: sorted by key and value, equal rows added up."""

    count: int
    key: int
    val: int
    diffs: tuple[int, ...]
    columns: Mapping[str, ColumnSlots]


class RowView(Protocol):
    """How rows of an arrangement are seen, in programs."""

    def lower(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> Rows | None:
        """What is shown of rows, with some of its columns; None if that cannot be written."""
        ...

    def needed(self, names: Iterable[str]) -> set[str]:
        """The columns from which some of the shown columns are computed."""
        ...


@dataclass(frozen=True, slots=True)
class IndexRegister:
    """An arrangement: its fresh rows, its trace, and the views through which both are seen, innermost first.

    `schema` is that of the stored rows.
    """

    schema: Schema
    fresh: Lanes
    trace: int
    views: tuple[RowView, ...] = ()

    def stored_names(self, names: Iterable[str]) -> set[str]:
        """The stored columns from which some of the shown columns are computed."""
        wanted = set(names)
        for view in reversed(self.views):
            wanted = view.needed(wanted)
        return wanted

    def shown(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> Rows | None:
        """What the views show of stored rows, with some columns."""
        wanted = [set(names)]
        for view in reversed(self.views):
            wanted.append(view.needed(wanted[-1]))
        shown: Rows | None = rows
        for view, after in zip(self.views, reversed(wanted[:-1]), strict=True):
            shown = None if shown is None else view.lower(program, shown, after)
        return shown

    def fresh_rows(self, program: ProgramBuilder, names: Iterable[str]) -> Rows | None:
        """The fresh rows as they are seen, with some columns at least."""
        fields = (*self.schema.key.fields, *self.schema.val.fields)
        return self.shown(program, Rows(self.fresh.count, fields, self.fresh.columns, self.fresh.diffs), names)


@dataclass(frozen=True, slots=True)
class Fresh:
    """Where the fresh batch of an imported arrangement goes: its lanes, the slot of references to its rows, and the
    number of the table that describes it."""

    lanes: Lanes
    references: int
    table: int

    @property
    def count(self) -> int:
        return self.lanes.count


def _nothing() -> None:
    """Commit nothing."""


class CallResult(NamedTuple):
    """What a called function computes."""

    changes: Changes
    commit: Callable[[], None] = _nothing
    """Note in the function's state what it has computed: called once the program commits, and not if it is undone."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A function that is called where a program stops, with the rows of some registers, of which one has rows."""

    given: tuple[Rows, ...]
    result: Rows
    function: Callable[..., CallResult]
