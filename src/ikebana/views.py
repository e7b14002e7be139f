"""Views: standing queries' results, as readers see them.

A view is an arrangement, maintained by a dataflow; reading it accumulates its trace at an epoch, on all workers. What
is read at an epoch is exact for that epoch, across tables and views.

Not guaranteed: that an epoch before the last closed one can still be read.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ikebana.collection import Arrangement, Collection
from ikebana.coordinator import Coordinator
from ikebana.dataflow.messages import Demand, Read, Wait
from ikebana.errors import DataflowError, TimeError
from ikebana.plan import ir


class View:
    """A standing query's result."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        plan: ir.Node,
        dataflow: str,
        uses: list[str],
        retire: Callable[[View], None],
    ) -> None:
        self.name, self.dataflow, self.uses, self.plan = name, dataflow, uses, plan
        self._engine, self._retire, self._dropped = coordinator, retire, False

    def read(self, at: int | None = None) -> pa.Table:
        """The result at an epoch, by default the last that is closed: its columns, and `diff`."""
        epoch = self._engine.epoch - 1 if at is None else at
        self.wait(epoch)
        return pa.concat_tables(self._engine.ask(Read(self.dataflow, (epoch,))))

    def wait(self, epoch: int) -> None:
        """Work until the result at an epoch is complete."""
        self._check()
        if epoch >= self._engine.epoch:
            raise TimeError(
                f"cannot wait for epoch {epoch} of {self.name!r}",
                detail=f"it is still open: the present epoch is {self._engine.epoch}",
                hint="advance the engine past it first",
            )
        self._engine.command(Demand(self.dataflow, epoch + 1))
        self._engine.ask(Wait(self.dataflow, epoch + 1))

    def rows(self) -> Collection:
        """The result as a collection, for further queries: they share it while this view lives."""
        self._check()
        return Arrangement(self.plan).rows()

    def drop(self) -> None:
        """Retire the query, and release what only it used."""
        with self._engine.lock:
            if not self._dropped:
                self._dropped = True
                self._retire(self)

    def _check(self) -> None:
        if self._dropped:
            raise DataflowError(f"view {self.name!r} was dropped", hint="install it again")
