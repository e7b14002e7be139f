"""Strings and binary values encoded as each other: digests, hexadecimal, base64, character sets, URL encoding.

Supported character sets are UTF-8, US-ASCII, ISO-8859-1, UTF-16BE and UTF-16LE; UTF-16 and UTF-32 are not supported.

Cost: Python encodes each distinct value once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa

from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import CASE_HINT, Call, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.failing import fail_on_error, fails_on_error
from ikebana.expressions.core.scalars import Arguments, Value, map_distinct, maps
from ikebana.expressions.core.tree import Tree, short_name
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.json.texts import array_length, object_keys

_STRING, _BINARY = pa.string(), pa.binary()


# Digests.


def _digest(kind: str, compute: Callable[[bytes], Any], gives: pa.DataType) -> None:
    @maps(kind, gives=gives)
    def _(call: Call, value: pa.Array) -> pa.Array:
        return map_distinct(compute, gives, value)


_digest("Md5", lambda value: hashlib.md5(value).hexdigest(), _STRING)
_digest("Sha1", lambda value: hashlib.sha1(value).hexdigest(), _STRING)
_digest("Crc32", zlib.crc32, pa.int64())


@maps("Sha2", gives=_STRING, nullable=True)
def _sha2(call: Call, value: Value, bits: Value) -> pa.Array:
    return map_distinct(_sha2_digest, _STRING, value, bits)


def _sha2_digest(value: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return hashlib.new(name, value).hexdigest() if name else None


# Hexadecimal.


@maps("Hex", gives=_STRING)
def _hex(call: Call, value: pa.Array) -> pa.Array:
    return map_distinct(_hex_digits, _STRING, value)


def _hex_digits(value: Any) -> str:
    if isinstance(value, int):
        return f"{value & (2**64 - 1):X}"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex().upper()


@maps("Unhex", gives=_BINARY, nullable=True, options=fail_on_error, raises=fails_on_error)
def _unhex(call: Call, text: pa.Array) -> pa.Array:
    def compute(text: str) -> bytes | None:
        if re.fullmatch("[0-9a-fA-F]*", text):
            return bytes.fromhex("0" * (len(text) % 2) + text)
        if fails_on_error(call):
            raise EvaluationError(
                f"cannot evaluate {call}",
                detail=f"{text!r} is not hexadecimal",
                hint="use unhex, which is null for such strings",
            )
        return None

    return map_distinct(compute, _BINARY, text)


# Base64.


@maps("UnBase64", gives=_BINARY, raises=True, options=fail_on_error)
def _unbase64(call: Call, text: pa.Array) -> pa.Array:
    """Characters outside the alphabet are skipped; with `failOnError`, only white space is."""

    def compute(text: str) -> bytes:
        encoded = re.sub(r"\s" if fails_on_error(call) else "[^A-Za-z0-9+/=]", "", text)
        unpadded = encoded.rstrip("=")
        has_bad_length = len(unpadded) % 4 == 1 or (encoded != unpadded and len(encoded) % 4)
        if has_bad_length or re.search("[^A-Za-z0-9+/]", unpadded):
            raise EvaluationError(f"cannot evaluate {call}", detail=f"{text!r} is not base64", hint=CASE_HINT)
        return base64.b64decode(unpadded + "=" * (-len(unpadded) % 4))

    return map_distinct(compute, _BINARY, text)


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
"""Python's name of each supported character set."""


def _charset(name: str) -> str:
    if name.lower() not in _CHARSETS:
        raise EvaluationError(f"the character set {name!r} is not supported", hint=f"use one of {', '.join(_CHARSETS)}")
    return _CHARSETS[name.lower()]


def _encode(value: str, charset: str, *_: bool) -> bytes:
    try:
        return value.encode(_charset(charset))
    except UnicodeError as error:
        raise EvaluationError(
            f"encode cannot convert {value!r} to {charset}", detail=str(error), hint="use 'utf-8'"
        ) from None


def _decode(value: bytes, charset: str, *_: bool) -> str:
    try:
        return value.decode(_charset(charset))
    except UnicodeError as error:
        raise EvaluationError(
            f"decode cannot convert {value!r} from {charset}", detail=str(error), hint=CASE_HINT
        ) from None


def _url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


# Functions that appear in plans as calls of static Java methods.

_STATIC_METHODS: dict[tuple[str, str], tuple[Callable[..., Any], bool]] = {
    ("Base64", "encode"): (_base64, False),
    ("Encode", "encode"): (_encode, True),
    ("StringDecode", "decode"): (_decode, True),
    ("UrlCodec", "encode"): (_url_encode, False),
    ("JsonExpressionUtils", "lengthOfJsonArray"): (array_length, False),
    ("JsonExpressionUtils", "jsonObjectKeys"): (object_keys, False),
}
"""By class and method: the function that computes it, and whether it can raise."""


@builds("StaticInvoke")
def _build_static_invoke(tree: Tree, children: Arguments, config: Config) -> Expression:
    name = (short_name(tree.fields["staticObject"]), tree.fields["functionName"])
    if name not in _STATIC_METHODS:
        raise SqlError(
            f"the function {'.'.join(name)} is not supported in a maintained view",
            detail=f"in {tree!r}",
            hint="compute it in a Python UDF, or when the view is read",
        )
    nullable = bool(tree.fields["returnNullable"]) or is_nullable(children)
    return Call(arrow_type(tree.fields["dataType"]), nullable, ".".join(name), children)


def _register_static_methods() -> None:
    for (owner, method), (compute, raises) in _STATIC_METHODS.items():

        def run(call: Call, *arguments: pa.Array, compute: Callable[..., Any] = compute) -> pa.Array:
            return map_distinct(compute, call.type, *arguments)

        function(f"{owner}.{method}", raises=raises)(run)


_register_static_methods()
