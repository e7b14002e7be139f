"""Catalyst's `failOnError`: whether an expression raises for invalid values, or is null for them.

It is the last option of a call: register a function with `options=fail_on_error, raises=fails_on_error`.
"""

from __future__ import annotations

from ikebana.expressions.core.base import Call, Config
from ikebana.expressions.core.tree import Tree


def fail_on_error(tree: Tree, config: Config) -> tuple[bool]:
    """The option of an expression that says whether it raises for invalid values."""
    return (bool(tree.fields["failOnError"]),)


def fails_on_error(call: Call) -> bool:
    """Whether a call, whose last option is that of `fail_on_error`, raises for invalid values."""
    return bool(call.options[-1])
