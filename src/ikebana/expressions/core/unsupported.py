"""Expressions that have no value that could be maintained, and why."""

from __future__ import annotations

from ikebana.errors import SqlError
from ikebana.expressions.core.base import Config, Expression, builds
from ikebana.expressions.core.scalars import Arguments
from ikebana.expressions.core.tree import Tree


@builds("Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle", "RandomSample")
def _random(tree: Tree, children: Arguments, config: Config) -> Expression:
    raise _refusal(tree, "it has another value each time that it is computed", "compute it when the view is read")


@builds("MonotonicallyIncreasingID", "SparkPartitionID", "InputFileName", "InputFileBlockStart", "InputFileBlockLength")
def _placed(tree: Tree, children: Arguments, config: Config) -> Expression:
    raise _refusal(tree, "it says where Spark computes a row, which is nowhere for a maintained one", "use a key")


@builds("CurrentTimestamp", "CurrentDate", "Now", "LocalTimestamp", "CurrentTime")
def _now(tree: Tree, children: Arguments, config: Config) -> Expression:
    hint = "a filter such as `ts >= now() - interval 1 hour` is maintained; other uses of the current time are not"
    raise _refusal(tree, "it changes while nothing else does", hint)


def _refusal(tree: Tree, detail: str, hint: str) -> SqlError:
    return SqlError(f"{tree.kind} is not deterministic, and cannot be in a maintained view", detail=detail, hint=hint)
