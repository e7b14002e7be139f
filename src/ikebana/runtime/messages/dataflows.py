"""Messages of dataflows: between workers, and the commands that create inputs, push changes and install queries.

A message between workers holds arrays, never rows: its size is that of the changes that move. Workers rely on the order
of the messages in a channel, so a transport must neither lose nor reorder them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ikebana.operators.changes import Changes, Fields
from ikebana.plan.ir import Node

PROPOSALS, ROUNDS, PROGRAM_MESSAGES, FIRST_EXCHANGE = range(4)
"""The channels of a dataflow: proposals for the next sweep, agreement on rounds, and then one for each exchange."""


@dataclass(frozen=True, slots=True)
class DataflowMessage:
    """From one worker to another: message `number` of a channel."""

    dataflow: str
    channel: int
    number: int
    sender: int
    body: Any


@dataclass(frozen=True, slots=True)
class JointMessage:
    """From one worker to another: what it says at a depth of a joint sweep (`ikebana.runtime.joint_sweeps`)."""

    number: int
    depth: int
    sender: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """From one worker to another: the dataflow has failed on `sender`, and fails on every worker."""

    dataflow: str
    sender: int
    reason: str


@dataclass(frozen=True, slots=True)
class CreateInput:
    """Create an input, to which changes can be pushed; a dataflow is going to have its rows, by the key of its plan.

    Changes of a row are pushed to the worker that owns it.
    """

    name: str
    fields: Fields
    dataflow: str


@dataclass(frozen=True, slots=True)
class CloseInput:
    """Close an input: it will not change any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Push:
    """Add changes to an input, at epochs that are not closed yet; sent to one worker only."""

    input: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class Advance:
    """Close the epochs before `epoch` on all inputs and tables."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Install:
    """Install a dataflow that maintains an arrangement. `memory` limits its size on each worker, in bytes.

    With an `owner`, the dataflow maintains an arrangement of the owner's own (`ikebana.plan.ir.with_owner`): any number
    of dataflows can be instances of one plan.
    """

    dataflow: str
    plan: Node
    memory: int | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """Complete the epochs of a dataflow before `epoch`, even if nothing has changed."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Let a dataflow fail, and all that import its arrangement: rows that it had are gone."""

    dataflow: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop a dataflow."""

    dataflow: str
