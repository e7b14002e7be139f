"""Strings and bytes as each other: digests, hexadecimal and base 64, character sets, numbers written out.

Digests and codes are computed by Python, once for each distinct value.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_UP, Context, Decimal
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyarrow import types

from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import Call, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.scalars import Arguments, Value, each_distinct, maps
from ikebana.expressions.core.tree import Tree, short
from ikebana.expressions.core.types import arrow_type

_TEXT, _BYTES = pa.string(), pa.binary()


def _fails(tree: Tree, config: Config) -> tuple[bool]:
    return (bool(tree.fields["failOnError"]),)


def _of_each(kind: str, compute: Callable[[Any], Any], gives: pa.DataType) -> None:
    @maps(kind, gives=gives)
    def _(call: Call, value: pa.Array) -> pa.Array:
        return each_distinct(compute, gives, value)


_of_each("Md5", lambda value: hashlib.md5(value).hexdigest(), _TEXT)
_of_each("Sha1", lambda value: hashlib.sha1(value).hexdigest(), _TEXT)
_of_each("Crc32", zlib.crc32, pa.int64())


@maps("Sha2", gives=_TEXT, nullable=True)
def _sha2(call: Call, value: Value, bits: Value) -> pa.Array:
    return each_distinct(_digest, _TEXT, value, bits)


def _digest(value: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return hashlib.new(name, value).hexdigest() if name else None


# Hexadecimal.


@maps("Hex", gives=_TEXT)
def _hex(call: Call, value: pa.Array) -> pa.Array:
    return each_distinct(_as_hex, _TEXT, value)


def _as_hex(value: Any) -> str:
    if isinstance(value, int):
        return f"{value & (2**64 - 1):X}"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex().upper()


@maps("Unhex", gives=_BYTES, nullable=True, options=_fails, raises=lambda call: bool(call.options[0]))
def _unhex(call: Call, text: pa.Array) -> pa.Array:
    def compute(text: str) -> bytes | None:
        if re.fullmatch("[0-9a-fA-F]*", text):
            return bytes.fromhex("0" * (len(text) % 2) + text)
        if call.options[0]:
            raise EvaluationError(f"cannot evaluate {call}", detail=f"{text!r} is not hexadecimal")
        return None

    return each_distinct(compute, _BYTES, text)


# Base 64.


@maps("UnBase64", gives=_BYTES, raises=True, options=_fails)
def _unbase64(call: Call, text: pa.Array) -> pa.Array:
    """What is not of the alphabet is left out, unless it must fail."""

    def compute(text: str) -> bytes:
        kept = re.sub(r"\s" if call.options[0] else "[^A-Za-z0-9+/=]", "", text)
        bare = kept.rstrip("=")
        if len(bare) % 4 == 1 or re.search("[^A-Za-z0-9+/]", bare) or (kept != bare and len(kept) % 4):
            raise EvaluationError(f"cannot evaluate {call}", detail=f"{text!r} is not in base 64")
        return base64.b64decode(bare + "=" * (-len(bare) % 4))

    return each_distinct(compute, _BYTES, text)


def _base64(value: bytes, chunked: bool) -> str:
    text = binascii.b2a_base64(value, newline=False).decode()
    return "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76)) if chunked else text


# Character sets.

_CHARSETS = {
    "utf-8": "utf-8",
    "us-ascii": "ascii",
    "iso-8859-1": "latin-1",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
}


def _charset(name: str) -> str:
    if name.lower() not in _CHARSETS:
        raise EvaluationError(f"the character set {name!r} is not supported", hint=f"use one of {', '.join(_CHARSETS)}")
    return _CHARSETS[name.lower()]


def _coded(code: Callable[[Any, str], Any]) -> Callable[..., Any]:
    def compute(value: Any, charset: str, *_: bool) -> Any:
        try:
            return code(value, _charset(charset))
        except UnicodeError as error:
            raise EvaluationError(f"{value!r} cannot be converted", detail=str(error)) from None

    return compute


def _url_encoded(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


# Functions that plans have as calls of Java methods.

_INVOKED: dict[tuple[str, str], tuple[Callable[..., Any], bool]] = {
    ("Base64", "encode"): (_base64, False),
    ("Encode", "encode"): (_coded(lambda value, charset: value.encode(charset)), True),
    ("StringDecode", "decode"): (_coded(lambda value, charset: value.decode(charset)), True),
    ("UrlCodec", "encode"): (_url_encoded, False),
}
"""By object and method: what it computes, and whether it may raise."""


@builds("StaticInvoke")
def _invoke(tree: Tree, children: Arguments, config: Config) -> Expression:
    name = (short(tree.fields["staticObject"]), tree.fields["functionName"])
    if name not in _INVOKED:
        raise SqlError(
            f"the function {'.'.join(name)} is not supported in a maintained view",
            detail=f"in {tree!r}",
            hint="compute it in a Python UDF, or when the view is read",
        )
    nullable = bool(tree.fields["returnNullable"]) or is_nullable(children)
    return Call(arrow_type(tree.fields["dataType"]), nullable, ".".join(name), children)


def _register_invoked() -> None:
    for (owner, method), (compute, raises) in _INVOKED.items():

        def run(call: Call, *given: pa.Array, compute: Callable[..., Any] = compute) -> pa.Array:
            return each_distinct(compute, call.type, *given)

        function(f"{owner}.{method}", raises=raises)(run)


_register_invoked()


# Numbers written out.


def _check_places(arguments: Arguments) -> None:
    if not types.is_integer(arguments[1].type):
        raise SqlError("format_number with a pattern is not supported", hint="give the number of decimal places")


@maps("FormatNumber", gives=_TEXT, nullable=True, check=_check_places, raises=True)
def _format_number(call: Call, value: Value, places: Value) -> pa.Array:
    return each_distinct(_formatted, _TEXT, value, places)


_PLACES = 300
_WIDE = Context(prec=700)


def _formatted(value: Any, places: int) -> str | None:
    """With commas between thousands, halves rounded to even digits."""
    if places < 0:
        return None
    if places > _PLACES:
        raise EvaluationError(f"a number cannot be written with {places} decimal places", hint=f"use at most {_PLACES}")
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return "NaN" if value != value else "∞" if value > 0 else "-∞"
        return f"{_rounded(value, places):,.{places}f}"
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN, _WIDE):,.{places}f}"


def _rounded(value: float, places: int) -> Decimal:
    """The digits that a float is written with, rounded; a half is one only if the float is exactly there."""
    written, exact, step = Decimal(repr(value)), Decimal(value), Decimal(1).scaleb(-places)
    mode = ROUND_HALF_EVEN
    lower = written.quantize(step, ROUND_DOWN, _WIDE)
    if exact != written and abs(written - lower) * 2 == step:
        mode = ROUND_UP if abs(exact) > abs(written) else ROUND_DOWN
    return written.quantize(step, mode, _WIDE)
