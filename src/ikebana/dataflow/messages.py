"""What workers are told, and what they tell each other. Plain values: any transport can carry them.

*Commands* come from the driver, to every worker in the same order. *Messages* go between workers: each
belongs to a channel of a dataflow and has a number in it, and a worker sends every peer exactly one message
for each number.

*Requests* come from the driver or from guests, and are answered. A worker that cannot answer yet keeps a request
and tries again when it has worked. A new kind of request is a value here and a case in `Worker.answer`; transports
carry any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes, Fields
from ikebana.plan.ir import Node
from ikebana.time import Time

PROPOSALS, ROUNDS, FIRST_EXCHANGE = 0, 1, 2
"""Channels of a dataflow: proposals for the next sweep, agreement on rounds, and from there one for each exchange."""


@dataclass(frozen=True, slots=True)
class Message:
    """From one worker to another: part `number` of a channel."""

    dataflow: str
    channel: int
    number: int
    sender: int
    body: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """From one worker to another: a dataflow failed here, and fails everywhere."""

    dataflow: str
    sender: int
    reason: str


@dataclass(frozen=True, slots=True)
class CreateInput:
    """A new input, to which changes can be pushed."""

    name: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class CloseInput:
    """An input will not change any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Push:
    """Changes for an input, at epochs not yet closed; to one worker only."""

    input: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class Advance:
    """All inputs close the epochs before this one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Install:
    """Install a dataflow that maintains an arrangement."""

    dataflow: str
    plan: Node


@dataclass(frozen=True, slots=True)
class Demand:
    """Complete the epochs before this one of a dataflow, also if nothing changes."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop a dataflow."""

    dataflow: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Answer (None) when a dataflow has completed the epochs before `epoch`; refuse when it has failed."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """Answer with this worker's shard of a dataflow's result at a time: an Arrow table."""

    dataflow: str
    at: Time


Command: TypeAlias = CreateInput | CloseInput | Push | Advance | Install | Demand | Retire
Letter: TypeAlias = Message | Failed
Request: TypeAlias = Any
"""What `Worker.answer` understands: `Wait`, `Read` and others."""


def unanswerable(request: Request) -> DataflowError:
    """The error for a request to which no answer will come, since nothing is left to do.

    >>> print(unanswerable(Wait("degrees", 8)))
    dataflow 'degrees' cannot complete epoch 7
      detail: it has not got there, and there is nothing left to do
      hint: advance its inputs past that epoch, and demand it, first
    """
    if isinstance(request, Wait):
        return DataflowError(
            f"dataflow {request.dataflow!r} cannot complete epoch {request.epoch - 1}",
            detail="it has not got there, and there is nothing left to do",
            hint="advance its inputs past that epoch, and demand it, first",
        )
    return DataflowError(
        f"there will be no answer to {request}", detail="a worker waits for more, and there is nothing left to do"
    )
