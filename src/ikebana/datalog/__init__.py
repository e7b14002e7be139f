"""Datalog programs in Soufflé's syntax, maintained while facts come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikebana.datalog.check import CheckedProgram, CheckedRule, Relation, check
from ikebana.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ikebana.datalog.parser import parse, parse_atom, parse_file, parse_rule, parse_source
    from ikebana.datalog.program import Program, RelationView, load

__getattr__ = lazy_names(
    __name__,
    {
        "ikebana.datalog.parser": ["parse", "parse_atom", "parse_file", "parse_rule", "parse_source"],
        "ikebana.datalog.program": ["Program", "RelationView", "load"],
    },
)

__all__ = [
    "CheckedProgram",
    "CheckedRule",
    "Program",
    "Relation",
    "RelationView",
    "check",
    "load",
    "parse",
    "parse_atom",
    "parse_file",
    "parse_rule",
    "parse_source",
]
