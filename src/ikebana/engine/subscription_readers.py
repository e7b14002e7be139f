"""The consumers of named subscriptions: an iterator over changes, and a stream that keeps its own positions.

Both deliver every epoch with changes at least once, in order, from the position on, and acknowledge epochs by storing
the position (`ikebana.engine.named_subscriptions`). An acknowledgement inside a transaction of the same thread is part
of that transaction.

Cost: an acknowledgement outside of a transaction takes one sync of the driver's log. Not guaranteed: the use of one
consumer by several threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ikebana.engine.coordinator import Coordinator
from ikebana.engine.subscriptions import Subscription
from ikebana.engine.thread_transactions import current_transaction
from ikebana.errors import DataflowError
from ikebana.plan import ir

if TYPE_CHECKING:
    from ikebana.engine.subscription_positions import NamedSubscription
    from ikebana.engine.views import View


class DurableSubscription(Subscription):
    """The consumer's side of a named subscription. See `View.changes`."""

    def __init__(
        self, named: NamedSubscription, coordinator: Coordinator, view: View, since: int | None, **options: Any
    ) -> None:
        """Iterate over the changes after the epoch `since`, or begin with the result; the changes are held."""
        self._named, self._delivered = named, since
        super().__init__(coordinator, view.name, view.dataflow, ir.schema_of(view.plan), since, **options)

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self._named.name

    @property
    def acknowledged(self) -> int | None:
        """The last epoch that was acknowledged, or a later one up to which nothing has changed; None before that."""
        return self._named.position

    def take(self, timeout: float | None = None) -> tuple[int, pa.Table] | None:
        self._named.check_not_failed()
        item = super().take(timeout)
        if item is not None:
            self._delivered = item[0]
        return item

    def ack(self, epoch: int | None = None) -> None:
        """Acknowledge an epoch, and all before it: they are not delivered again. By default the last delivered one.

        Stored on return. Inside a transaction of this thread, the acknowledgement is part of the transaction: after any
        crash, either both are stored or neither.
        """
        epoch = self._delivered if epoch is None else epoch
        if epoch is None or self._delivered is None or epoch > self._delivered:
            raise DataflowError(
                f"cannot acknowledge epoch {epoch} of subscription {self.name!r}",
                detail="nothing was delivered yet" if self._delivered is None else f"it is at epoch {self._delivered}",
                hint="acknowledge an epoch after its changes were delivered",
            )
        self._named.check_not_failed()
        note = self._named.note(epoch)
        if not _join_transaction(self._coordinator, note):
            self._named.acknowledge(epoch)

    def _on_handled(self, epoch: int) -> None:
        self.ack(epoch)


class NamedStream:
    """A named subscription whose consumer keeps track of what it has processed, such as a Spark stream.

    The consumer may ask for the changes after `acknowledged`, or after any later epoch. There are none up to `epoch`,
    from which on the view can be read. If the subscription is `new`, the result comes first, as changes of `start`.
    """

    def __init__(self, named: NamedSubscription, value: Mapping[str, Any]) -> None:
        self._named = named
        self.acknowledged: int = value["acknowledged"]
        self.epoch: int = value["epoch"]
        self.is_new: bool = value["new"]
        self.closed = False

    @property
    def start(self) -> int:
        """The epoch as of which the result is delivered first, if it is."""
        return self.acknowledged + 1

    def check(self) -> None:
        """Raise if the subscription has failed, was dropped, or is read by another stream."""
        self._named.check_not_failed()
        if self.closed:
            raise DataflowError(
                f"this stream does not read subscription {self._named.name!r} any more",
                detail="it was dropped, or another stream reads it",
                hint="give each stream a subscription of its own",
            )

    def acknowledge(self, epoch: int) -> None:
        """Acknowledge an epoch; stored on return."""
        self.check()
        self._named.acknowledge(epoch)

    def end_with(self, reason: str, hint: str) -> None:
        """Called when the subscription has failed."""
        self.closed = True

    def close(self) -> None:
        """Stop reading."""
        self.closed = True


def _join_transaction(coordinator: Coordinator, note: dict[str, Any]) -> bool:
    """Make a note part of the transaction of this thread, if there is one; return whether there is."""
    transaction = current_transaction(coordinator)
    if transaction is None:
        return False
    if transaction.note is not None and transaction.note["position"][0] != note["position"][0]:
        raise DataflowError(
            "a transaction can have the acknowledgement of one subscription only",
            hint="acknowledge the other one in a transaction of its own",
        )
    transaction.note = note
    return True
