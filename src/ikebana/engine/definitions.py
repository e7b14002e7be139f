"""Definitions: what workers have been told that new ones, in their place, would have to be told as well.

`Definitions` follows the commands of a coordinator. It keeps those that define tables, inputs and dataflows, until they
are dropped; the epochs that are held; and the changes of tables that only the driver makes (`Table.apply`), such as the
parameters of prepared statements. The rows of other tables are not here: those of durable tables are in the storage
directory, and the names of all others that have got rows are in `unstored`: if the workers die, their rows are lost.

Changes of the driver's tables are kept with their epochs. The oldest are joined to one, as of the last of their epochs,
when there are more than `MOST_CHANGES`; then these tables are not known any more at earlier epochs (`first_epoch`).

The coordinator's lock is held around every command that defines or changes something. Cost: a few dictionary
operations for each such command, and memory for the changes of the driver's tables.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ikebana.operators.changes import Changes
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime.messages import (
    Command,
    CreateInput,
    CreateTable,
    DropTable,
    Hold,
    Install,
    KeepHistory,
    Push,
    Release,
    ReplaceTable,
    Retire,
    TableSpec,
)

MOST_CHANGES = 1000
"""The number of changes of a table that are kept apart at most."""


class Definitions:
    """What new workers would have to be told."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str, str], CreateInput | CreateTable | ReplaceTable] = {}  # by name and dataflow
        self._installs: dict[str, Install] = {}  # by dataflow
        self._order: dict[tuple[str, ...], None] = {}  # the keys of both, in the order of their commands
        self._changes: dict[tuple[str, int], list[Changes]] = {}  # of the driver's tables, by table and worker
        self.holds: dict[int, Hold] = {}
        """What is held, by number."""
        self.unstored: set[str] = set()
        """Inputs, streams and tables with rows that are nowhere but on the workers."""
        self.lost: set[str] = set()
        """Those of them whose rows were lost, when workers were replaced."""
        self.last_changes: dict[str, int] = {}
        """The last epoch at which each table was changed, of those that were changed since the engine was started."""
        self.kept: int | None = None
        """The epoch from which on workers keep the history of all dataflows, if they do."""
        self.first_epoch = 0
        """The first epoch at which the tables are known that only the driver changes."""

    def note(self, command: Command) -> None:
        """Take note of a command, before it is sent."""
        match command:
            case Install(dataflow):
                self._installs[dataflow] = command
                self._order[(dataflow,)] = None
            case Retire(dataflow):
                self._installs.pop(dataflow, None)
                self._order.pop((dataflow,), None)
            case Hold(number):
                self.holds[number] = command
            case Release(number):
                self.holds.pop(number, None)
            case KeepHistory(epoch):
                self.kept = epoch
            case CreateInput(name):
                self._add(name, "", command)
            case CreateTable(table) | ReplaceTable(table):
                self._add(table.name, table.dataflow, command)
            case DropTable(name):
                self._drop(name)

    def _add(self, name: str, dataflow: str, command: CreateInput | CreateTable | ReplaceTable) -> None:
        self._sources[name, dataflow] = command
        self._order[name, dataflow] = None

    def _drop(self, name: str) -> None:
        for key in [key for key in self._sources if key[0] == name]:
            del self._sources[key], self._order[key]
        for pushed in [pushed for pushed in self._changes if pushed[0] == name]:
            del self._changes[pushed]
        self.unstored.discard(name)
        self.lost.discard(name)
        self.last_changes.pop(name, None)

    def note_change(self, push: Push, worker: int) -> None:
        """Keep a change of a table that only the driver changes, before it is sent to a worker."""
        kept = self._changes.setdefault((push.input, worker), [])
        kept.append(push.changes)
        if len(kept) > MOST_CHANGES:
            joined, self._changes[push.input, worker] = kept[: MOST_CHANGES // 2], kept[MOST_CHANGES // 2 :]
            epoch = max(int(changes.times.max()) for changes in joined)
            self._changes[push.input, worker].insert(0, _as_of(Changes.concat(joined), epoch).consolidated())
            self.first_epoch = max(self.first_epoch, epoch)

    # What new workers have to be told.

    def of_tables(self) -> list[Command]:
        """The commands that create inputs and tables, and the dataflows that have the rows of tables."""
        primaries, tables, commands = self._primaries, self.tables, list[Command]()
        created: set[str] = set()
        for key in self._order:
            if len(key) == 1:
                commands += [self._installs[key[0]]] if key[0] in primaries else []
                continue
            name, dataflow = key
            definition = self._sources[name, dataflow]
            if isinstance(definition, CreateInput):
                commands.append(definition)
            elif definition.table == tables[name] or dataflow in self._installs:  # else nobody reads it any more
                commands.append((ReplaceTable if name in created else CreateTable)(definition.table))
                created.add(name)
        return commands

    @property
    def _primaries(self) -> set[str]:
        """The dataflows that have the rows of tables, or had them before columns were added."""
        return {dataflow for _, dataflow in self._sources if dataflow}

    def of_queries(self) -> list[Install]:
        """The commands that install all other dataflows, in order."""
        primaries = self._primaries
        return [install for dataflow, install in self._installs.items() if dataflow not in primaries]

    def changes_from(self, epoch: int) -> Iterator[tuple[int, Push]]:
        """The changes of the driver's tables, each with its worker; those before an epoch are as of that epoch."""
        for (name, worker), kept in self._changes.items():
            for changes in kept:
                yield worker, Push(name, _as_of(changes, epoch) if changes.times.min() < epoch else changes)

    @property
    def tables(self) -> dict[str, TableSpec]:
        """The tables by name, as they are now."""
        commands = (command for command in self._sources.values() if not isinstance(command, CreateInput))
        return {command.table.name: command.table for command in commands}

    @property
    def dataflows(self) -> list[str]:
        """All dataflows, in the order in which they were installed."""
        return list(self._installs)

    def lost_dataflows(self) -> dict[str, str]:
        """The dataflows whose rows are lost with the workers, and why. Streams have no rows."""
        tables = self.tables
        self.lost |= {name for name in self.unstored if name not in tables or tables[name].kind != "stream"}
        reasons = {}
        for name in self.lost:
            for dataflow in self._first_reader(name):
                reasons[dataflow] = f"a worker has died, and the rows of {name!r} are not stored"
        for name, dataflow in self._sources:
            is_former = dataflow in self._installs and tables[name].dataflow != dataflow  # lacks a column
            if is_former and not tables[name].stored_as:
                reasons[dataflow] = f"a worker has died, and {name!r} has got another column since the query was made"
        return reasons

    def _first_reader(self, source: str) -> list[str]:
        """The dataflow that has the rows of an input or table: the first one that reads it."""
        return [name for name, install in self._installs.items() if source in sources_of(install.plan)][:1]

    def stored_sources(self, dataflow: str) -> set[str] | None:
        """The tables that a dataflow reads if all of them are durable; None if others are among them."""
        names, tables = self.sources_of_dataflow(dataflow), self.tables
        return names if all(name in tables and tables[name].stored_as for name in names) else None

    def sources_of_dataflow(self, dataflow: str) -> set[str]:
        """The inputs and tables that a dataflow reads, directly or not."""
        install = self._installs.get(dataflow)
        return set() if install is None else sources_of(install.plan)


def sources_of(plan: ir.Node) -> set[str]:
    """The inputs and tables that a plan reads."""
    return {node.name for node in walk(plan) if isinstance(node, ir.Source)}


def _as_of(changes: Changes, epoch: int) -> Changes:
    """The same changes, none of them before an epoch."""
    return changes.with_times(np.maximum(changes.times, epoch))
