"""LIKE and regular expressions over columns.

A literal pattern is translated when the query is created, which may refuse it (`ikebana.expressions.strings.patterns`).
Texts without line terminators are then matched by Arrow's RE2 where it can; all others, and columns of patterns, by
Python, once for each distinct text and pattern. A pattern in a column that is not supported raises when it is met.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import Call, Config, Expression, Literal, builds
from ikebana.expressions.core.buffers import is_true, scatter
from ikebana.expressions.core.scalars import Arguments, Value, each_distinct, maps
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.strings.patterns import TERMINATORS, Pattern, java, like

_TEXT, _INT = pa.string(), pa.int32()
_TEXTS = pa.list_(pa.field("element", _TEXT, True))
_PARTS = pa.list_(pa.field("element", _TEXT, False))
_TERMINATED = f"[{TERMINATORS}]"


def _checks(translate: Callable[[str], Pattern]) -> Callable[[Arguments], None]:
    """Translates a literal pattern, to have it refused when the query is created."""

    def check(arguments: Arguments) -> None:
        pattern = arguments[1]
        if isinstance(pattern, Literal) and pattern.value is not None:
            translate(pattern.value)

    return check


def _pattern_varies(call: Call) -> bool:
    return not isinstance(call.arguments[1], Literal)


def _at_run_time(translate: Callable[[str], Pattern], pattern: str) -> re.Pattern[str]:
    """A pattern that was found in a column, or was translated before."""
    try:
        return translate(pattern).python
    except SqlError as error:
        raise EvaluationError(error.what, detail=error.detail, hint=error.hint) from None


def _split_by_terminator(
    text: pa.Array, fast: Callable[[pa.Array], pa.Array], slow: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """One way for texts without line terminators, another for those that have some."""
    terminated = pc.fill_null(pc.match_substring_regex(text, _TERMINATED), False)
    if not pc.any(terminated).as_py():
        return fast(text)
    slowly = is_true(terminated)
    parts = [(~slowly, fast(text.filter(pa.array(~slowly)))), (slowly, slow(text.filter(terminated)))]
    return scatter(parts[0][1].type, len(text), parts)


def _found(translate: Callable[[str], Pattern], text: Value, pattern: Value) -> pa.Array:
    """Whether each text has a match."""

    def slow(text: Value) -> pa.Array:
        return each_distinct(
            lambda text, pattern: _at_run_time(translate, pattern).search(text) is not None, pa.bool_(), text, pattern
        )

    if isinstance(text, pa.Array) and isinstance(pattern, pa.Scalar):
        re2 = translate(pattern.as_py()).re2
        if re2 is not None:
            fast = partial(pc.match_substring_regex, pattern=re2)
            return fast(text) if translate is like else _split_by_terminator(text, fast, slow)
    return slow(text)


@maps("Like", gives=pa.bool_(), check=_checks(like), raises=_pattern_varies)
def _like(call: Call, text: Value, pattern: Value) -> pa.Array:
    return _found(like, text, pattern)


@maps("RLike", gives=pa.bool_(), check=_checks(java), raises=_pattern_varies)
def _rlike(call: Call, text: Value, pattern: Value) -> pa.Array:
    return _found(java, text, pattern)


@builds("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny")
def _many_likes(tree: Tree, children: Arguments, config: Config) -> Expression:
    raise SqlError(
        f"the expression {tree.kind} is not supported in a maintained view",
        detail="Spark's plan does not say which patterns it has",
        hint="write LIKE ALL as several LIKE with AND, LIKE ANY as several with OR",
    )


# Replacing.


@lru_cache(maxsize=512)
def _replacement(text: str, names: tuple[str, ...], groups: int) -> tuple[str | int, ...]:
    """A replacement of Java's: texts, and numbers of groups."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            parts.append(text[at + 1])
            at += 2
        elif named := re.compile(r"\$\{(\w+)\}").match(text, at):
            if named[1] not in names:
                raise _bad_replacement(text, f"there is no group {named[1]}")
            parts.append(names.index(named[1]))
            at = named.end()
        elif text[at] in "\\$":
            number = re.compile(r"\$(\d)").match(text, at)
            if not number or int(number[1]) > groups:
                raise _bad_replacement(text, f"{text[at : at + 2]!r} names no group")
            chosen, at = int(number[1]), number.end()
            while at < len(text) and text[at] in "0123456789" and chosen * 10 + int(text[at]) <= groups:
                chosen, at = chosen * 10 + int(text[at]), at + 1
            parts.append(chosen)
        else:
            parts.append(text[at])
            at += 1
    return tuple(parts)


def _bad_replacement(text: str, detail: str) -> EvaluationError:
    return EvaluationError(f"the replacement {text!r} of a regular expression is not valid", detail=detail)


def _parts_of(pattern: re.Pattern[str], replacement: str) -> tuple[str | int, ...]:
    names = {number: name for name, number in pattern.groupindex.items()}
    return _replacement(replacement, tuple(names.get(each, "") for each in range(pattern.groups + 1)), pattern.groups)


def _replaced(text: str, pattern: str, replacement: str, position: int) -> str:
    compiled = _at_run_time(java, pattern)
    start = max(position - 1, 0)
    if start and start >= len(text):
        return text
    rest = text[start:]

    def written(match: re.Match[str]) -> str:
        parts = _parts_of(compiled, replacement)
        return "".join(each if isinstance(each, str) else match[each] or "" for each in parts)

    return text[:start] + compiled.sub(written, rest)


def _as_re2(pattern: Pattern, replacement: str) -> tuple[str, str] | None:
    """The same replacement for RE2, if it finds the same matches: it leaves out empty ones after others."""
    if pattern.re2 is None or pattern.matches_nothing:
        return None
    parts = _parts_of(pattern.python, replacement)
    if any(isinstance(each, int) and each > 9 for each in parts):
        return None
    written = "".join(f"\\{each}" if isinstance(each, int) else each.replace("\\", "\\\\") for each in parts)
    return pattern.re2, written


def _check_replacement(arguments: Arguments) -> None:
    _checks(java)(arguments)
    position = arguments[3]
    if isinstance(position, Literal) and position.value is not None and position.value < 1:
        raise SqlError("the position of regexp_replace is not valid", detail=f"{position.value} is less than 1")


@maps("RegExpReplace", gives=_TEXT, check=_check_replacement, raises=True)
def _regexp_replace(call: Call, text: Value, pattern: Value, replacement: Value, position: Value) -> pa.Array:
    def slow(text: Value) -> pa.Array:
        return each_distinct(_replaced, _TEXT, text, pattern, replacement, position)

    literal = all(isinstance(each, pa.Scalar) for each in (pattern, replacement, position))
    if literal and isinstance(text, pa.Array) and position.as_py() == 1:
        re2 = _as_re2(java(pattern.as_py()), replacement.as_py())
        if re2 is not None:
            return _split_by_terminator(
                text, partial(pc.replace_substring_regex, pattern=re2[0], replacement=re2[1]), slow
            )
    return slow(text)


# Extracting.


def _in_range(compiled: re.Pattern[str], group: int) -> int:
    if not 0 <= group <= compiled.groups:
        raise EvaluationError(
            f"the regular expression {compiled.pattern!r} has no group {group}", detail=f"it has {compiled.groups}"
        )
    return group


def _extracted(text: str, pattern: str, group: int) -> str:
    compiled = _at_run_time(java, pattern)
    match = compiled.search(text)
    return match[_in_range(compiled, group)] or "" if match else ""


def _all_extracted(text: str, pattern: str, group: int) -> list[str]:
    compiled = _at_run_time(java, pattern)
    return [match[_in_range(compiled, group)] or "" for match in compiled.finditer(text)]


def _where(text: str, pattern: str, group: int) -> int:
    match = _at_run_time(java, pattern).search(text)
    return match.start() + 1 if match else 0


def _extracts(kind: str, compute: Callable[[str, str, int], Any], gives: pa.DataType) -> None:
    @maps(kind, gives=gives, check=_checks(java), raises=True)
    def _(call: Call, text: Value, pattern: Value, group: Value) -> pa.Array:
        return each_distinct(compute, gives, text, pattern, group)


_extracts("RegExpExtract", _extracted, _TEXT)
_extracts("RegExpExtractAll", _all_extracted, _TEXTS)
_extracts("RegExpInStr", _where, _INT)


# Splitting.


@maps("StringSplit", gives=_PARTS, check=_checks(java), raises=_pattern_varies)
def _split(call: Call, text: Value, pattern: Value, limit: Value) -> pa.Array:
    if isinstance(text, pa.Array) and isinstance(pattern, pa.Scalar) and isinstance(limit, pa.Scalar):
        plain = _as_plain(pattern.as_py())
        if plain and limit.as_py() <= 0:
            return pc.split_pattern(text, plain)
    return each_distinct(_pieces, _PARTS, text, pattern, limit)


def _as_plain(pattern: str) -> str | None:
    """The text that a pattern stands for, if it is one."""
    bare = re.sub(r"\\([^a-zA-Z0-9])", "", pattern)
    return None if re.search(r"[\\^$.|?*+()\[\]{}]", bare) else re.sub(r"\\(.)", r"\1", pattern)


def _pieces(text: str, pattern: str, limit: int) -> list[str]:
    """What Java's split gives, with empty strings at the end; an empty pattern parts all characters."""
    if not pattern and text:
        shown = min(limit, len(text)) if limit > 0 else len(text)
        return [*text[: shown - 1], text[shown - 1 :]]
    pieces: list[str] = []
    at = 0
    for match in _at_run_time(java, pattern).finditer(text):
        if at == 0 and match.end() == 0:
            continue
        if limit > 0 and len(pieces) == limit - 1:
            break
        pieces.append(text[at : match.start()])
        at = match.end()
    return [*pieces, text[at:]]
