"""Plans on their way to workers: pickled once, and afterwards sent by their digest.

Workers keep the plans that they were sent. The driver knows which (`SentPlans`): an install command with a plan that
the workers keep carries only the plan's digest. So a further instance of a query is neither pickled nor unpickled, and
the nodes of its plan have computed their columns and schemas already. What is private to an instance, the name of its
dataflow and its owner, is not part of the plan.

A plan is sealed, that is pickled, until a worker opens it, so that a plan that cannot be opened only fails its own
dataflow. Users' functions are sent by value (cloudpickle), and may use pandas (`ikebana.pandas_import`). Plan nodes
keep the digests that the driver has computed: the digest of an unpickled function could differ, and workers must agree
on which plans are equal.

Contract. All workers get the same install commands in the same order. Each command names the plans to forget after it,
so that workers keep exactly what the driver believes they keep: at most `MAX_PLANS` plans of `MAX_BYTES` pickled bytes
in total, those used last. A plan that cannot be opened is kept as well, and fails again.

Cost: pickling or unpickling takes about 10 us for each node; a digest costs nothing. Not guaranteed: that a function
whose captured values change after its plan was made is sent anew. The digest says which function a plan has, and it is
computed when the plan is made.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from dataclasses import dataclass, fields
from functools import lru_cache
from types import FunctionType
from typing import Any

import cloudpickle

from ikebana.errors import DataflowError
from ikebana.pandas_import import use_pandas
from ikebana.plan import ir
from ikebana.runtime.messages import Install

MAX_PLANS = 256
"""The number of plans that workers keep."""

MAX_BYTES = 4 << 20
"""The pickled bytes of the plans that workers keep."""


_FUNCTION_MARK = b"cloudpickle"
"""The pickle of a function by value names the module that restores it."""


@dataclass(frozen=True, slots=True)
class SealedInstall:
    """An install command as it is sent: with the digest of the plan, and its pickle if workers do not have it.

    `forget` has the digests of plans that workers need not keep any longer.
    """

    dataflow: str
    digest: str
    plan: bytes | None
    memory: int | None
    owner: str
    forget: tuple[str, ...]


class SentPlans:
    """The driver's record of the plans that all workers keep."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()  # by digest; the plan used last is at the end
        self._bytes = 0

    def seal(self, command: Install) -> SealedInstall:
        """An install command that is sent to all workers, before any other that is sealed later."""
        digest = command.plan.digest
        pickled = None if digest in self._sizes else _pickled(command)
        if pickled is not None:
            self._sizes[digest] = len(pickled)
            self._bytes += len(pickled)
        self._sizes.move_to_end(digest)
        return SealedInstall(command.dataflow, digest, pickled, command.memory, command.owner, tuple(self._evicted()))

    def _evicted(self) -> list[str]:
        """Remove the plans that are too many or too large; return their digests."""
        evicted = []
        while len(self._sizes) > MAX_PLANS or self._bytes > MAX_BYTES:
            digest, size = self._sizes.popitem(last=False)
            self._bytes -= size
            evicted.append(digest)
        return evicted


class KeptPlans:
    """The plans that a worker keeps, by digest."""

    def __init__(self) -> None:
        self._plans: dict[str, ir.Node | bytes] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def open(self, sealed: SealedInstall) -> Install:
        """The command. Raises whatever unpickling the functions in the plan raises."""
        if sealed.plan is not None:
            self._plans[sealed.digest] = sealed.plan
        try:
            return Install(sealed.dataflow, self._opened(sealed.digest), sealed.memory, sealed.owner)
        finally:
            for digest in sealed.forget:
                del self._plans[digest]

    def _opened(self, digest: str) -> ir.Node:
        plan = self._plans[digest]
        if isinstance(plan, bytes):
            if _FUNCTION_MARK in plan:
                use_pandas()
            plan = self._plans[digest] = pickle.loads(plan)
        return plan


def _pickled(command: Install) -> bytes:
    file = io.BytesIO()
    try:
        _PlanPickler(file).dump(command.plan)
    except Exception as error:
        raise DataflowError(
            f"cannot send dataflow {command.dataflow!r} to its workers",
            detail=f"{type(error).__name__}: {error}",
            hint="its functions must not refer to files, locks, connections and the like",
        ) from error
    return file.getvalue()


class _PlanPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles plans: functions by value, and nodes with their digests.

    Asks cloudpickle only about what it treats differently from pickle: functions and classes, except our own classes.
    """

    def __init__(self, file: io.BytesIO) -> None:
        self.dispatch_table: dict[type, Any] = {}  # much faster than cloudpickle's `ChainMap`
        for table in reversed(cloudpickle.Pickler.dispatch_table.maps):
            self.dispatch_table.update(table)
        super().__init__(file, 5)

    def reducer_override(self, value: Any) -> Any:
        kind: Any = type(value)
        if issubclass(kind, ir.Node):
            return _node, (kind, *map(value.__dict__.get, _names(kind)))
        if kind is FunctionType or (issubclass(kind, type) and not value.__module__.startswith("ikebana.")):
            return super().reducer_override(value)
        return NotImplemented


def _node(kind: Any, *values: Any) -> ir.Node:
    node: ir.Node = object.__new__(kind)
    node.__dict__.update(zip(_names(kind), values, strict=True))
    return node


@lru_cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a class of nodes."""
    return tuple(field.name for field in fields(kind))
