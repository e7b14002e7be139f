"""Batch files: an immutable batch of a table's trace as one file.

The file has a header, which is JSON (the schema, the frontiers, the number of rows, and where each section is), and
sections: the lanes as they are in memory, and the payload as an Arrow IPC stream. Sections start at multiples of 64
bytes, so that a file mapped into memory can be used as a batch without copying. Constant lanes are stored once. Header
and sections have checksums, and bytes between them are zero: there is no byte whose change is not noticed. The format
is in docs/STORAGE.md.

Cost: nothing is copied to write or to read a batch; the checksum takes 0.35 ns for each byte, and is verified when a
file is read. With `mapped`, rows are then fetched again from the page cache or the disk when they are used.

Not guaranteed: that damage which happens after a mapped file was verified is noticed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import HASHING, Schema
from ikebana.encoding.lanes import Array, constant_diffs, is_constant
from ikebana.encoding.payload import Payload
from ikebana.errors import CorruptionError, StorageError
from ikebana.machine import yield_processor
from ikebana.storage.directory import Directory, Pace, at_once
from ikebana.storage.ipc import stream_chunks
from ikebana.time import Antichain
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.updates import Updates

FORMAT = 1

_FIRST_HASHING = 1
"""What was used before its version was stored."""

_MAGIC = b"IKEBBAT1"
_PREFIX = struct.Struct("<8sII")
_ALIGNED_TO = 64
_LANES = ("times", "tix", "diffs", "key", "val", "ident", "collided")


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A batch file as manifests mention it. `checksum` is that of its header, which has those of the sections."""

    path: str
    rows: int
    bytes: int
    checksum: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# Writing.


def write_batch(directory: Directory, path: str, batch: StoredBatch, pace: Pace = at_once) -> BatchFile:
    """Write a batch as a file, which is durable on return; see `Directory.write`."""
    head, chunks = _encoded(batch)
    try:
        directory.write(path, chunks, pace)
    except StorageError:  # a part of it may be there, which nothing mentions
        with suppress(StorageError):
            directory.delete(path)
        raise
    size = sum(memoryview(chunk).nbytes for chunk in chunks)
    return BatchFile(path, len(batch), size, zlib.crc32(head))


def _encoded(batch: StoredBatch) -> tuple[bytes, list[Any]]:
    """The header of the file of a batch, and all its bytes."""
    lanes = _lanes(batch)
    sections = [_lane_section(name, lane) for name, lane in lanes.items()]
    contents: list[list[Any]] = [[np.ascontiguousarray(_cells(lane))] for lane in lanes.values()]
    sections.append({"name": "payload"})
    contents.append(_payload_stream(batch.payload))
    offset = 0  # from the end of the header
    for section, content in zip(sections, contents, strict=True):
        size = sum(memoryview(chunk).nbytes for chunk in content)
        section |= {"offset": offset, "bytes": size, "checksum": _checksum(content)}
        offset += size + _gap(size)
    head = _header(batch, sections)
    chunks: list[Any] = [_PREFIX.pack(_MAGIC, len(head), zlib.crc32(head)), head]
    for content in contents:
        size = sum(memoryview(chunk).nbytes for chunk in content)
        chunks += [*(chunk for chunk in content if memoryview(chunk).nbytes), bytes(_gap(size))]
    return head, chunks


def _lanes(batch: StoredBatch) -> dict[str, Array]:
    updates = batch.updates
    lanes = (updates.times, updates.tix, updates.diffs, updates.key, updates.val, batch.ident, batch.collided)
    return dict(zip(_LANES, lanes, strict=True))


def _lane_section(name: str, lane: Array) -> dict[str, Any]:
    return {"name": name, "type": lane.dtype.str, "shape": lane.shape, "constant": _is_stored_once(lane)}


def _is_stored_once(lane: Array) -> bool:
    return bool(lane.size) and is_constant(lane)


def _cells(lane: Array) -> Array:
    return lane[..., :1] if _is_stored_once(lane) else lane


def _gap(size: int) -> int:
    return -size % _ALIGNED_TO


def _checksum(chunks: Sequence[Any]) -> int:
    """The checksum of all chunks. Other threads may run after each piece: commits that find no free processor would
    otherwise wait for milliseconds until the system interrupts this thread."""
    checksum = 0
    for chunk in chunks:
        content = memoryview(chunk).cast("B") if memoryview(chunk).nbytes else b""
        for start in range(0, len(content), _CHECKED_BYTES):
            checksum = zlib.crc32(content[start : start + _CHECKED_BYTES], checksum)
            yield_processor()
    return checksum


_CHECKED_BYTES = 256 << 10
"""The size of a piece: 0.1 ms."""


def _payload_stream(payload: Payload) -> list[Any]:
    """The payload as an IPC stream of one record batch; nothing if there is no payload."""
    if not payload:
        return []
    rows = pa.RecordBatch.from_arrays(list(payload), names=[str(at) for at in range(len(payload))])
    return stream_chunks(rows)


def _header(batch: StoredBatch, sections: list[dict[str, Any]]) -> bytes:
    description = batch.description
    fields = {
        "format": FORMAT,
        "hashing": HASHING,
        "schema": encode_schema(batch.schema),
        "lower": list(description.lower),
        "upper": list(description.upper),
        "since": list(description.since),
        "rows": len(batch),
        "sections": sections,
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return text + b" " * _gap(_PREFIX.size + len(text))


@lru_cache(maxsize=1024)
def encode_schema(schema: Schema) -> dict[str, Any]:
    """A schema as JSON: with Arrow's own encoding of the columns, and a text to read."""
    sides = {
        name: base64.b64encode(pa.schema(side.fields).serialize()).decode()
        for name, side in (("key", schema.key), ("val", schema.val))
    }
    return {**sides, "diffs": list(schema.diffs), "hash_bits": schema.key.hash_bits, "text": repr(schema)}


def decode_schema(fields: dict[str, Any]) -> Schema:
    """The schema that `encode_schema` has encoded."""
    return _decode_schema(fields["key"], fields["val"], tuple(fields["diffs"]), fields["hash_bits"])


@lru_cache(maxsize=1024)
def _decode_schema(key: str, val: str, diffs: tuple[str, ...], hash_bits: int) -> Schema:
    sides = (tuple(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(side)))) for side in (key, val))
    return Schema(*sides, diffs=diffs, hash_bits=hash_bits)


def schema_digest(schema: Schema) -> str:
    """A short text that is equal for equal schemas."""
    return hashlib.sha256(json.dumps(encode_schema(schema), sort_keys=True).encode()).hexdigest()[:16]


# Reading.


def read_batch(
    directory: Directory, file: BatchFile, *, table: str = "", mapped: bool = True, verify: bool = True
) -> StoredBatch:
    """The batch in a file: mapped into memory, or read. Without `verify` only the header is verified."""
    return _Reader(directory, file.path, file, table).batch(mapped, verify)


def verify_batch_file(directory: Directory, path: str, file: BatchFile | None, table: str) -> None:
    """Raise if a file is damaged, or is not the one that a manifest mentions, if one does."""
    _Reader(directory, path, file, table).verify()


def check_hashing(directory: Directory, header: dict[str, Any]) -> None:
    """Raise if a file has rows whose lanes or shards another version of ikebana has computed in another way."""
    hashing = header.get("hashing", _FIRST_HASHING)
    if hashing != HASHING:
        raise StorageError(
            f"the rows in the storage directory {directory.uri} are hashed in an unknown way",
            detail=f"they have version {hashing}, and this version of ikebana would not find them by version {HASHING}",
            hint="open the storage directory with the version of ikebana that wrote it, or a later one",
        )


class _Reader:
    """Reads one file, and knows what to say if it is damaged."""

    def __init__(self, directory: Directory, path: str, file: BatchFile | None, table: str) -> None:
        self._directory, self._path, self._file, self._table = directory, path, file, table

    def verify(self) -> None:
        content = self._directory.read(self._path)
        header, start = self._header(content)
        self._verify(content, header["sections"], start)

    def batch(self, mapped: bool, verify: bool) -> StoredBatch:
        try:
            content = self._directory.read(self._path, mapped=mapped)
        except FileNotFoundError:
            raise self._damaged("it is missing") from None
        header, start = self._header(content)
        sections = {section["name"]: section for section in header["sections"]}
        if verify:
            self._verify(content, header["sections"], start)
        lanes = [self._lane(content, sections[name], start) for name in _LANES]
        payload = self._payload(content, sections["payload"], start)
        times, tix, diffs, key, val, ident, collided = lanes
        updates = Updates(times, tix, diffs, decode_schema(header["schema"]), key, val, payload)
        frontiers = (Antichain(map(tuple, header[name])) for name in ("lower", "upper", "since"))
        batch = StoredBatch(updates, ident, collided, Description(*frontiers))
        return replace(batch, mapped_bytes=batch.nbytes) if mapped and self._directory.can_map else batch

    def _header(self, content: pa.Buffer) -> tuple[dict[str, Any], int]:
        """The header, and where it ends."""
        file = self._file
        if file is not None and content.size != file.bytes:
            raise self._damaged(f"it has {content.size:,} bytes instead of {file.bytes:,}")
        if content.size < _PREFIX.size:
            raise self._damaged("it is too short")
        magic, length, checksum = _PREFIX.unpack(bytes(content[: _PREFIX.size]))
        head = bytes(content[_PREFIX.size : _PREFIX.size + length])
        expected = checksum if file is None else file.checksum
        if magic != _MAGIC or not checksum == zlib.crc32(head) == expected:
            raise self._damaged("the checksum of its header is wrong")
        header = json.loads(head)
        if header["format"] != FORMAT:
            raise StorageError(
                f"the batch file {self._directory.full(self._path)} has the unknown format {header['format']}",
                hint="open the storage directory with the version of ikebana that wrote it, or a later one",
            )
        check_hashing(self._directory, header)
        return header, _PREFIX.size + length

    def _verify(self, content: pa.Buffer, sections: list[dict[str, Any]], start: int) -> None:
        end = start
        for section in sections:
            begin = start + section["offset"]
            if any(bytes(content[end:begin])):
                raise self._damaged(f"bytes at offset {end:,} are not zero")
            end = begin + section["bytes"]
            if end > content.size or zlib.crc32(content[begin:end]) != section["checksum"]:
                raise self._damaged(f"the checksum of its section {section['name']!r} is wrong")
        if any(bytes(content[end:])) or content.size != end + _gap(end):
            raise self._damaged(f"the bytes after offset {end:,} are wrong")

    def _lane(self, content: pa.Buffer, section: dict[str, Any], start: int) -> Array:
        shape = tuple(section["shape"])
        stored = (*shape[:-1], 1) if section["constant"] else shape
        offset, dtype = start + section["offset"], np.dtype(section["type"])
        cells = np.frombuffer(content, dtype, int(np.prod(stored)), offset).reshape(stored)
        if not section["constant"]:
            return cells
        if len(shape) == 2:
            return constant_diffs(cells[:, 0], shape[1])
        return np.ndarray(shape, dtype, cells.copy(), strides=(0,))

    def _payload(self, content: pa.Buffer, section: dict[str, Any], start: int) -> Payload:
        if not section["bytes"]:
            return ()
        begin = start + section["offset"]
        rows = pa.ipc.open_stream(content[begin : begin + section["bytes"]]).read_next_batch()
        return tuple(rows.columns)

    def _damaged(self, problem: str) -> CorruptionError:
        of_table = f" of table {self._table!r}" if self._table else ""
        rows = "an unknown number of" if self._file is None else f"{self._file.rows:,}"
        return self._directory.damaged(self._path, problem, f"{rows} rows{of_table}")
