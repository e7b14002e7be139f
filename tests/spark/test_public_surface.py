"""What users see of a session: every public name is documented and typed. No Spark is started."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import ikebana
from ikebana.engine.held_epochs import HeldEpoch
from ikebana.engine.subscriptions import Subscription
from ikebana.engine.tables import Transaction
from ikebana.spark import FollowedStream, Session, Table, View, connect
from ikebana.spark.advising import Advice
from ikebana.spark.datalog import SessionProgram
from ikebana.spark.graph import SessionGraph
from ikebana.spark.info import ArrangementInfo, HoldInfo, SessionStatus, TableInfo, ViewInfo
from ikebana.spark.memory_use import MemoryInfo
from ikebana.spark.metrics import Metric, MetricsServer
from ikebana.spark.verifying import Verification
from ikebana.sql.statements import Statement

CLASSES: list[type] = [
    *(Session, Table, View, FollowedStream, Transaction, HeldEpoch, Subscription, Statement),
    *(SessionProgram, SessionGraph, Verification, MetricsServer),
    *(TableInfo, ViewInfo, HoldInfo, MemoryInfo, ArrangementInfo, SessionStatus, Metric, Advice),
]

FOR_THE_LIBRARY = {"step"}
"""Methods of collections with which the library itself builds queries."""


def members(kind: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class."""
    found = [(name, inspect.getattr_static(kind, name)) for name in dir(kind) if not name.startswith("_")]
    return [(name, member) for name, member in found if isinstance(member, property) or inspect.isroutine(member)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_everything_public_is_documented_and_typed(kind: type) -> None:
    assert inspect.getdoc(kind), kind
    for name, member in members(kind):
        if name in FOR_THE_LIBRARY or isinstance(member, staticmethod | classmethod):
            continue
        function = member.fget if isinstance(member, property) else member
        documented = inspect.getdoc(getattr(kind, name)) or ""
        assert len(documented) > 10, f"{kind.__name__}.{name} has no docstring"
        returned = function.__annotations__.get("return")
        assert returned not in (None, Any, "Any") or name in dir(tuple), f"the result of {kind.__name__}.{name}"


def test_connect_is_documented_where_users_find_it() -> None:
    options = inspect.signature(connect).parameters
    assert all(f"{name}: " in (connect.__doc__ or "") for name in options)
    assert ikebana.connect.__annotations__["return"] == "Session"
