"""Datalog programs in Soufflé's syntax, maintained while facts come and go."""

from ikebana.datalog.check import CheckedProgram, CheckedRule, Relation, check
from ikebana.datalog.parser import parse, parse_atom, parse_file, parse_rule, parse_source

__all__ = [
    "CheckedProgram",
    "CheckedRule",
    "Relation",
    "check",
    "parse",
    "parse_atom",
    "parse_file",
    "parse_rule",
    "parse_source",
]
