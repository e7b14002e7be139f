"""Small files of JSON with a checksum: manifests, bases, leases and the format.

The file begins with a line of text, `IKEBJSON <length> <checksum> <checksum of the line so far>`, so that it can be
read with any tool; the JSON text follows. Length and checksum (CRC-32, in hexadecimal) are those of the JSON text.

A file that is shorter than its first line says was not written completely: `read_json` returns `TORN`, which can happen
only on filesystems that show files while they are written. Everything else that is wrong with a file is damage, and so
is a short file on a local disk.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from ikebana.storage.directory import Directory

TORN: Final = object()
"""The content of a file that was not written completely."""

_MAGIC = b"IKEBJSON"
_FIRST_LINE = len(_MAGIC) + 1 + 10 + 1 + 8 + 1 + 8 + 1


def write_json(directory: Directory, path: str, value: Any) -> int:
    """Write a value of JSON as a file; return its size."""
    content = encode_json(value)
    directory.write(path, [content])
    return len(content)


def encode_json(value: Any) -> bytes:
    """The content of a file."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    line = b"%s %010d %08x" % (_MAGIC, len(text), zlib.crc32(text))
    return b"%s %08x\n%s" % (line, zlib.crc32(line), text)


def read_json(directory: Directory, path: str, lost: str) -> Any:
    """The value in a file, or TORN; `lost` says what is lost if the file is damaged or missing."""
    try:
        content = bytes(directory.read(path, mapped=False))
    except FileNotFoundError:
        raise directory.damaged(path, "it is missing", lost) from None
    line, text = content[:_FIRST_LINE], content[_FIRST_LINE:]
    if len(line) < _FIRST_LINE:
        return _torn(directory, path, lost)
    start, end = line[:-10], line[-10:]
    if end != b" %08x\n" % zlib.crc32(start) or not start.startswith(_MAGIC):
        raise directory.damaged(path, "its first line has a wrong checksum", lost)
    _, length, checksum = start.split(b" ")
    if len(text) < int(length):
        return _torn(directory, path, lost)
    if len(text) > int(length) or b"%08x" % zlib.crc32(text) != checksum:
        raise directory.damaged(path, "its checksum is wrong", lost)
    return json.loads(text)


def _torn(directory: Directory, path: str, lost: str) -> Any:
    if directory.can_append:  # a local disk, where files get their names once they are complete
        raise directory.damaged(path, "it is too short", lost)
    return TORN
