"""What workers are told, and what they tell each other. Plain values: any transport can carry them.

*Commands* come from the driver, to every worker in the same order. *Messages* go between workers: each
belongs to a channel of a dataflow and has a number in it, and a worker sends every peer exactly one message
for each number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.operators.changes import Changes, Fields
from ikebana.plan.ir import Node

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


Command: TypeAlias = CreateInput | CloseInput | Push | Advance | Install | Demand | Retire
Letter: TypeAlias = Message | Failed
