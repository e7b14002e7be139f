"""Inputs: collections that a program changes directly, without checks or transactions.

Rows are sent to the workers that own them, so an input's own dataflow needs no agreement between workers.

Changes are applied at the epoch that is open; `Engine.advance` closes it. For changes that are checked and applied
atomically, use tables (`ikebana.engine.tables`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.tables import defensive_copy
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.changes import Changes
from ikebana.plan import ir
from ikebana.runtime.messages import CloseInput, Push
from ikebana.runtime.staging import changes_by_owner


class Input(Collection):
    """A collection that is changed from outside. See `Engine.input`."""

    def __init__(self, coordinator: Coordinator, name: str, node: ir.Node, schema: Schema) -> None:
        """`schema` is that of the arrangement of the rows, whose key says which worker owns a row."""
        super().__init__(node)
        self.name, self._coordinator, self._schema, self._closed = name, coordinator, schema, False

    def insert(self, data: Any) -> None:
        """Add rows at the open epoch. `data` is a mapping of column names to values, or an Arrow table."""
        self.push(data, 1)

    def remove(self, data: Any) -> None:
        """Remove one copy of each row at the open epoch. `data` is as for `insert`."""
        self.push(data, -1)

    def close(self) -> None:
        """Declare that there will be no more changes. State that was kept only for future changes is released."""
        self._closed = True
        self._coordinator.command(CloseInput(self.name))

    def push(self, data: Any, diffs: Any, epochs: Any = None) -> None:
        """Change the multiplicities of rows.

        `data` is as for `insert`; `diffs` is one integer for all rows, or an array with one for each row. `epochs` are
        the epochs of the changes, which must not be closed yet; by default all changes are at the open epoch.
        """
        if self._closed:
            raise DataflowError(f"input {self.name!r} is closed", hint="create a new input for further changes")
        coordinator = self._coordinator
        with coordinator.lock:
            times = (coordinator.epoch,) if epochs is None else epochs
            changes = Changes.of(self.node.columns, defensive_copy(data), times, np.array(diffs))
            if len(changes) and changes.times[:, 0].min() < coordinator.epoch:
                raise TimeError(
                    f"cannot change input {self.name!r} at epoch {changes.times[:, 0].min()}",
                    detail=f"epochs before {coordinator.epoch} are closed",
                    hint=f"make the changes at epoch {coordinator.epoch} or later",
                )
            if self.name in coordinator.definitions.lost:
                raise DataflowError(
                    f"cannot change input {self.name!r}",
                    detail="a worker has died, and the rows of inputs are not stored",
                    hint="use a table, which is stored",
                )
            coordinator.definitions.unstored.add(self.name)
            for worker, part in changes_by_owner(self._schema, changes, coordinator.cluster.size):
                coordinator.command(Push(self.name, part), worker)
