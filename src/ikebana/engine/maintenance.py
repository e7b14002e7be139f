"""Maintenance: every arrangement in use is maintained by exactly one dataflow, on all workers.

`Maintenance` keeps the catalogue (`ikebana.engine.catalog`) and the workers in step: the first user of an arrangement
installs a dataflow for it, the last one to release it retires the dataflow. A dataflow that has failed is replaced when
the next user comes.

The coordinator's lock must be held around every call. Cost: one command to all workers for the first and last user of
an arrangement, nothing for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ikebana.engine.catalog import Catalog, Use, User
from ikebana.engine.coordinator import Coordinator
from ikebana.plan import ir
from ikebana.runtime.messages import FAILURES, DataflowFailed, Install, Retire


@dataclass(frozen=True, slots=True)
class Need:
    """An arrangement that a user needs, and the name of the dataflow that maintains it if no dataflow does so yet.

    With an `owner`, the arrangement is not shared with others who need an equal one.
    """

    template: ir.Node
    dataflow_name: str
    user: User
    owner: str = ""

    @property
    def arrangement(self) -> ir.Node:
        """The arrangement, as the catalogue knows it."""
        return ir.with_owner(self.template, self.owner) if self.owner else self.template


class Maintenance:
    """Installs and retires dataflows as the catalogue's arrangements gain and lose users."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.catalog = Catalog()
        self._coordinator = coordinator
        coordinator.add_listener(FAILURES, self._on_failure)

    def _on_failure(self, worker: int, notification: DataflowFailed) -> None:
        self.catalog.mark_failed(notification.dataflow)

    def use(self, need: Need, memory: int | None = None, *, hold: bool = False) -> Use:
        """Use an arrangement; install a dataflow for it if none maintains it.

        `memory` limits the bytes that a new dataflow may use on each worker. With `hold`, workers may be told only
        together with the next command.
        """
        arrangement = need.arrangement
        dataflow = self.catalog.maintainer(arrangement)
        if dataflow is None:
            dataflow = self.catalog.new_dataflow_name(need.dataflow_name)
            self._coordinator.command(Install(dataflow, need.template, memory, need.owner), hold=hold)
            self.catalog.add(dataflow, arrangement)
        return self.catalog.use(dataflow, need.user)

    def use_all(self, needs: Sequence[Need], memory: int | None = None) -> list[Use]:
        """Use several arrangements, or, if one of them cannot be installed, none. All dataflows are one message."""
        new = [at for at, need in enumerate(needs) if self.catalog.maintainer(need.arrangement) is None]
        uses: list[Use] = []
        try:
            for at, need in enumerate(needs):
                uses.append(self.use(need, memory, hold=at != new[-1] if new else False))
        except BaseException:
            self.release_all(uses)
            raise
        return uses

    def release(self, use: Use) -> None:
        """Release one use of an arrangement; the last one retires its dataflow."""
        if self.catalog.release(use):
            self._coordinator.command(Retire(use.dataflow))

    def release_all(self, uses: list[Use]) -> None:
        """Release several uses, the latest first: a dataflow is retired before those whose arrangements it imports."""
        for use in reversed(uses):
            self.release(use)
