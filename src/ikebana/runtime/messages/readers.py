"""Messages of readers: subscriptions, notifications of events, holds, and questions of functions to the driver.

A subscription and a hold keep changes from compaction until they are acknowledged or released. Their readers may fail
to say so: the driver ends their leases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ikebana.errors import IkebanaError
from ikebana.operators.row_errors import Errors


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Send the changes of a dataflow's result at epochs after `at`; with `snapshot`, first send the result at `at`.

    The worker sends `Changed` notifications. `credit` limits how many of them may have rows, and `credit_bytes` the
    size of their rows; then the worker waits for `Resume`. Meanwhile it keeps at most `backlog` rows and
    `backlog_bytes` bytes.

    With `binding`, the subscription is to the rows and errors of one binding of a prepared statement, by which the
    result must be arranged. Such subscriptions form a `group`: the worker sends to one of them only what concerns it,
    and to the group how far that is complete.

    With `past`, `at` is an epoch that a hold keeps readable, and not the last closed one.
    """

    number: int
    dataflow: str
    at: int
    snapshot: bool
    credit: int
    credit_bytes: int
    backlog: int
    backlog_bytes: int
    binding: int | None = None
    group: int = -1
    past: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """Reset the credit of a subscription to these values."""

    number: int
    credit: int
    credit_bytes: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a subscription."""

    number: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Notification: all changes of a subscription at epochs before `upper` that were not sent before.

    `epochs` is the epoch of all rows, or an array with the epoch of each; `changes` is a table with the columns of the
    result and the diffs, of `size` bytes. Both are None if nothing has changed. `errors` has the changes of the errors,
    by epoch.
    """

    number: int
    upper: int
    epochs: Any
    changes: Any
    errors: tuple[tuple[int, Errors], ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionPaused:
    """Notification: a subscription of a group has no credit. What the group is told does not hold for it any more.

    The next `Changed` of the subscription has everything that was not sent.
    """

    number: int


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """Notification: a subscription has ended, why, and what the user can do about it."""

    number: int
    reason: str
    hint: str = ""


FAILURES = -1
"""The `number` of `DataflowFailed` notifications, which belong to no subscription."""


@dataclass(frozen=True, slots=True)
class DataflowFailed:
    """Notification: a dataflow has failed; errors of single rows are not failures."""

    dataflow: str
    number: int = FAILURES


EVENTS = -2
"""The `number` of `DataflowEvent` notifications, which belong to no subscription."""


@dataclass(frozen=True, slots=True)
class DataflowEvent:
    """Notification: what somebody who watches a dataflow wants to know of.

    failed: it has failed. errors: on this worker, the result has got errors of single rows, or has lost all of them.
    slow: the epochs before `epoch` have taken this worker `seconds` of work.
    """

    dataflow: str
    kind: Literal["failed", "errors", "slow"]
    epoch: int = 0
    seconds: float = 0.0
    number: int = EVENTS


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a dataflow's result readable at epochs from `at` on. A second `Hold` with a later `at` advances it."""

    number: int
    dataflow: str
    at: int


@dataclass(frozen=True, slots=True)
class Release:
    """Release a hold."""

    number: int


@dataclass(frozen=True, slots=True)
class AskDriver:
    """Forward a question to the driver, and answer with its answer: clients are connected to workers only.

    `number` is the recipient within the driver; `ticket` is a unique id of the request, and `client` the public key of
    the client that asks.
    """

    number: int
    ticket: int
    question: bytes
    client: bytes


@dataclass(frozen=True, slots=True)
class DriverQuestion:
    """Notification: a client has a question for the driver. `client` is the public key of the client."""

    number: int
    ticket: int
    question: bytes
    client: bytes


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The driver's answer to a question of a client, or the error to raise instead."""

    ticket: int
    value: Any = None
    error: IkebanaError | None = None
