"""LIKE, and functions of regular expressions: rlike, regexp_replace, regexp_extract, regexp_instr, split.

Patterns are Java's (`ikebana.expressions.strings.patterns`). A literal pattern that is not supported is refused when
the query is created; one in a column raises an EvaluationError when a row with it is computed.

Cost: LIKE with literal parts and `%` is a search (`ikebana.expressions.strings.searching`). Other literal patterns that
have a translation to RE2 are matched by Arrow, in strings without line terminators. Otherwise Python matches each
distinct combination of string and pattern once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import BUILDERS, Call, Config, Expression, Literal, builds
from ikebana.expressions.core.buffers import is_true, scatter
from ikebana.expressions.core.scalars import Arguments, Value, map_distinct, maps
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.strings.patterns import TERMINATORS, Pattern, translate_java, translate_like
from ikebana.expressions.strings.searching import LEAST_ROWS, like_search

_STRING, _INT = pa.string(), pa.int32()
_NULLABLE_STRINGS = pa.list_(pa.field("element", _STRING, True))
_STRINGS = pa.list_(pa.field("element", _STRING, False))
_ANY_TERMINATOR = f"[{TERMINATORS}]"

Translate = Callable[[str], Pattern]


def _checks(translate: Translate) -> Callable[[Arguments], None]:
    """A check that refuses a literal pattern which is not supported."""

    def check(arguments: Arguments) -> None:
        pattern = arguments[1]
        if isinstance(pattern, Literal) and pattern.value is not None:
            translate(pattern.value)

    return check


def _pattern_varies(call: Call) -> bool:
    return not isinstance(call.arguments[1], Literal)


def _compiled(translate: Translate, pattern: str) -> re.Pattern[str]:
    """The pattern for Python; raises an EvaluationError if it is not supported."""
    try:
        return translate(pattern).python
    except SqlError as error:
        raise EvaluationError(error.what, detail=error.detail, hint=error.hint) from None


def _split_by_terminator(
    text: pa.Array, fast: Callable[[pa.Array], pa.Array], slow: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Apply `fast` to strings without line terminators, `slow` to the others."""
    has_terminator = pc.fill_null(pc.match_substring_regex(text, _ANY_TERMINATOR), False)
    if not pc.any(has_terminator).as_py():
        return fast(text)
    flags = is_true(has_terminator)
    parts = [(~flags, fast(text.filter(pa.array(~flags)))), (flags, slow(text.filter(has_terminator)))]
    return scatter(parts[0][1].type, len(text), parts)


def _has_match(translate: Translate, text: Value, pattern: Value) -> pa.Array:
    """Whether the pattern matches somewhere in each string."""

    def slow(text: Value) -> pa.Array:
        return map_distinct(
            lambda text, pattern: _compiled(translate, pattern).search(text) is not None, pa.bool_(), text, pattern
        )

    if isinstance(text, pa.Array) and isinstance(pattern, pa.Scalar):
        re2 = translate(pattern.as_py()).re2
        if re2 is not None:
            fast = partial(pc.match_substring_regex, pattern=re2)
            return fast(text) if translate is translate_like else _split_by_terminator(text, fast, slow)
    return slow(text)


@maps("Like", gives=pa.bool_(), check=_checks(translate_like), raises=_pattern_varies)
def _like(call: Call, text: Value, pattern: Value) -> pa.Array:
    if isinstance(pattern, pa.Scalar) and isinstance(text, pa.Array) and len(text) >= LEAST_ROWS:
        search = like_search(pattern.as_py())
        if search is not None:
            return search.flags(text)
    return _has_match(translate_like, text, pattern)


@maps("RLike", gives=pa.bool_(), check=_checks(translate_java), raises=_pattern_varies)
def _rlike(call: Call, text: Value, pattern: Value) -> pa.Array:
    return _has_match(translate_java, text, pattern)


@builds("like")
def _build_like_with_escape(tree: Tree, children: Arguments, config: Config) -> Expression:
    """LIKE with another escape character than a backslash, which planning adds as the third argument."""
    text, pattern, escape = children
    if not isinstance(pattern, Literal) or not isinstance(escape, Literal):
        raise SqlError(
            "LIKE with ESCAPE and a pattern that is not constant is not supported in a maintained view",
            hint="escape with a backslash",
        )
    if pattern.value is not None:
        pattern = replace(pattern, value=_with_backslashes(pattern.value, escape.value))
    return BUILDERS["Like"](Tree("Like", {}, ()), (text, pattern), config)


def _with_backslashes(pattern: str, escape: str) -> str:
    """A pattern of LIKE whose escape character is a backslash.

    >>> print(_with_backslashes("10!%_!!", "!"))
    10\\%_!
    """
    written, position = [], 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            following = pattern[position : position + 1]
            if following not in ("_", "%", escape) or not following:
                raise SqlError(
                    f"the pattern {pattern!r} of LIKE is not valid",
                    detail=f"{escape!r} must be followed by _, % or itself",
                    hint="write the escape character twice to mean itself",
                )
            character = following if following == escape and escape not in "_%" else f"\\{following}"
        elif character == "\\":
            character = "\\\\"
        written.append(character)
        position += 1
    return "".join(written)


@builds("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny")
def _build_several_patterns(tree: Tree, children: Arguments, config: Config) -> Expression:
    """A string, and the patterns, which planning adds as further arguments."""
    text, *patterns = children
    conditions = [BUILDERS["Like"](Tree("Like", {}, ()), (text, pattern), config) for pattern in patterns]
    if tree.called.startswith("Not"):
        conditions = [BUILDERS["Not"](Tree("Not", {}, ()), (condition,), config) for condition in conditions]
    operator = "And" if tree.called.endswith("All") else "Or"
    return reduce(lambda left, right: BUILDERS[operator](Tree(operator, {}, ()), (left, right), config), conditions)


# Replacing.


@lru_cache(maxsize=512)
def _parse_replacement(text: str, names: tuple[str, ...], groups: int) -> tuple[str | int, ...]:
    """The parts of a Java replacement: literal strings, and numbers of groups. `names` are the names of the groups."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            parts.append(text[at + 1])
            at += 2
        elif named := re.compile(r"\$\{(\w+)\}").match(text, at):
            if named[1] not in names:
                raise _invalid_replacement(text, f"the pattern has no group named {named[1]!r}")
            parts.append(names.index(named[1]))
            at = named.end()
        elif text[at] in "\\$":
            number = re.compile(r"\$(\d)").match(text, at)
            if not number or int(number[1]) > groups:
                raise _invalid_replacement(text, f"{text[at : at + 2]!r} does not refer to a group of the pattern")
            group, at = int(number[1]), number.end()
            while at < len(text) and text[at] in "0123456789" and group * 10 + int(text[at]) <= groups:
                group, at = group * 10 + int(text[at]), at + 1
            parts.append(group)
        else:
            parts.append(text[at])
            at += 1
    return tuple(parts)


def _invalid_replacement(text: str, detail: str) -> EvaluationError:
    return EvaluationError(
        f"the replacement {text!r} of regexp_replace is invalid",
        detail=detail,
        hint="write \\\\$ for a dollar sign",
    )


def _replacement_parts(pattern: re.Pattern[str], replacement: str) -> tuple[str | int, ...]:
    by_number = {number: name for name, number in pattern.groupindex.items()}
    names = tuple(by_number.get(number, "") for number in range(pattern.groups + 1))
    return _parse_replacement(replacement, names, pattern.groups)


def _replaced(text: str, pattern: str, replacement: str, position: int) -> str:
    compiled = _compiled(translate_java, pattern)
    start = max(position - 1, 0)
    if start and start >= len(text):
        return text

    def expanded(match: re.Match[str]) -> str:
        parts = _replacement_parts(compiled, replacement)
        return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)

    return text[:start] + compiled.sub(expanded, text[start:])


def _as_re2(pattern: Pattern, replacement: str) -> tuple[str, str] | None:
    """The pattern and replacement for RE2; None if its matches could differ: RE2 skips empty matches after others."""
    if pattern.re2 is None or pattern.can_match_empty:
        return None
    parts = _replacement_parts(pattern.python, replacement)
    if any(isinstance(part, int) and part > 9 for part in parts):
        return None
    rewrite = "".join(f"\\{part}" if isinstance(part, int) else part.replace("\\", "\\\\") for part in parts)
    return pattern.re2, rewrite


def _check_replacement(arguments: Arguments) -> None:
    _checks(translate_java)(arguments)
    position = arguments[3]
    if isinstance(position, Literal) and position.value is not None and position.value < 1:
        raise SqlError(
            f"the position {position.value} of regexp_replace is invalid", hint="use a position of at least 1"
        )


@maps("RegExpReplace", gives=_STRING, check=_check_replacement, raises=True)
def _regexp_replace(call: Call, text: Value, pattern: Value, replacement: Value, position: Value) -> pa.Array:
    def slow(text: Value) -> pa.Array:
        return map_distinct(_replaced, _STRING, text, pattern, replacement, position)

    is_literal = all(isinstance(value, pa.Scalar) for value in (pattern, replacement, position))
    if is_literal and isinstance(text, pa.Array) and position.as_py() == 1:
        re2 = _as_re2(translate_java(pattern.as_py()), replacement.as_py())
        if re2 is not None:
            return _split_by_terminator(
                text, partial(pc.replace_substring_regex, pattern=re2[0], replacement=re2[1]), slow
            )
    return slow(text)


# Extracting.


def _checked_group(compiled: re.Pattern[str], group: int) -> int:
    """The number of a group; raises an EvaluationError if the pattern does not have it."""
    if not 0 <= group <= compiled.groups:
        raise EvaluationError(
            f"the regular expression {compiled.pattern!r} has no group {group}",
            detail=f"it has {compiled.groups} groups",
            hint="groups are numbered from 1; group 0 is the entire match",
        )
    return group


def _extracted(text: str, pattern: str, group: int) -> str:
    compiled = _compiled(translate_java, pattern)
    match = compiled.search(text)
    return match[_checked_group(compiled, group)] or "" if match else ""


def _all_extracted(text: str, pattern: str, group: int) -> list[str]:
    compiled = _compiled(translate_java, pattern)
    return [match[_checked_group(compiled, group)] or "" for match in compiled.finditer(text)]


def _match_position(text: str, pattern: str, group: int) -> int:
    match = _compiled(translate_java, pattern).search(text)
    return match.start() + 1 if match else 0


def _extracts(kind: str, compute: Callable[[str, str, int], Any], gives: pa.DataType) -> None:
    @maps(kind, gives=gives, check=_checks(translate_java), raises=True)
    def _(call: Call, text: Value, pattern: Value, group: Value) -> pa.Array:
        return map_distinct(compute, gives, text, pattern, group)


_extracts("RegExpExtract", _extracted, _STRING)
_extracts("RegExpExtractAll", _all_extracted, _NULLABLE_STRINGS)
_extracts("RegExpInStr", _match_position, _INT)


# Splitting.


@maps("StringSplit", gives=_STRINGS, check=_checks(translate_java), raises=_pattern_varies)
def _split(call: Call, text: Value, pattern: Value, limit: Value) -> pa.Array:
    if isinstance(text, pa.Array) and isinstance(pattern, pa.Scalar) and isinstance(limit, pa.Scalar):
        separator = _as_literal_string(pattern.as_py())
        if separator and limit.as_py() <= 0:
            return pc.split_pattern(text, separator)
    return map_distinct(_pieces, _STRINGS, text, pattern, limit)


def _as_literal_string(pattern: str) -> str | None:
    """The string that a pattern without special characters matches, None if it has any."""
    unescaped = re.sub(r"\\([^a-zA-Z0-9])", "", pattern)
    return None if re.search(r"[\\^$.|?*+()\[\]{}]", unescaped) else re.sub(r"\\(.)", r"\1", pattern)


def _pieces(text: str, pattern: str, limit: int) -> list[str]:
    """The result of Java's split, including trailing empty strings; an empty pattern splits between all characters."""
    if not pattern and text:
        count = min(limit, len(text)) if limit > 0 else len(text)
        return [*text[: count - 1], text[count - 1 :]]
    pieces: list[str] = []
    at = 0
    for match in _compiled(translate_java, pattern).finditer(text):
        if at == 0 and match.end() == 0:
            continue
        if limit > 0 and len(pieces) == limit - 1:
            break
        pieces.append(text[at : match.start()])
        at = match.end()
    return [*pieces, text[at:]]
