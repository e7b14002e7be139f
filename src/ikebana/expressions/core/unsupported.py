"""Expressions that a maintained view rejects because they are not deterministic, with the reason for each."""

from __future__ import annotations

from ikebana.errors import SqlError
from ikebana.expressions.core.base import Config, Expression, builds
from ikebana.expressions.core.scalars import Arguments
from ikebana.expressions.core.tree import Tree


@builds("Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle", "RandomSample")
def _random(tree: Tree, children: Arguments, config: Config) -> Expression:
    raise _refusal(tree, "its value differs each time it is computed", "compute it when the view is read")


@builds("MonotonicallyIncreasingID", "SparkPartitionID", "InputFileName", "InputFileBlockStart", "InputFileBlockLength")
def _partitioning(tree: Tree, children: Arguments, config: Config) -> Expression:
    raise _refusal(tree, "it depends on Spark's physical partitioning", "use a key column instead")


@builds("CurrentTimestamp", "CurrentDate", "Now", "LocalTimestamp", "CurrentTime")
def _current_time(tree: Tree, children: Arguments, config: Config) -> Expression:
    hint = "a filter such as `ts >= now() - interval 1 hour` is maintained; other uses of the current time are not"
    raise _refusal(tree, "its value changes while the data does not", hint)


def _refusal(tree: Tree, detail: str, hint: str) -> SqlError:
    return SqlError(
        f"{tree.kind} is not deterministic and not supported in a maintained view", detail=detail, hint=hint
    )
