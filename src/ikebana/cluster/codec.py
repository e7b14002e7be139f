"""Encoding messages as frames, and decoding them: a pickle, with large arrays as frames of their own.

A message is a list of frames. The first is a pickle. Arrays of `LARGE` bytes or more are not in the pickle: they follow
as frames, without a copy on either side. The sender sends the array's own bytes, and the receiver creates arrays on top
of the frames' memory, which are read-only; updates are immutable, so that is no restriction. Between processes that
share memory, the frames of large messages are not sent but put there (`ikebana.cluster.shared_memory`): then a message
is a descriptor of them. Which way a message goes is decided by `ikebana.cluster.links`.

On the way, a frame is split into parts of `PART_BYTES`, so that a large message on a slow link is not taken for silence
(`ikebana.cluster.authentication`). A part of that size is followed by another part of the same frame, which may be
empty. The receiver joins the parts, which is a copy.

Where the default pickle is wasteful, it is replaced: constant lanes remain one cell (NumPy would expand them), of a
slice of an Arrow array only the slice is sent (Arrow would send the entire array), schemas are pickled and unpickled
only once, small tables and few staged rows are sent as record batches in Arrow's IPC format, and messages are created
by their constructors and not field by field.

Users' functions are sent only inside plans, which are sealed (`ikebana.cluster.plans`).

Cost: encoding or decoding takes 4 us for a proposal and 20 us for an exchanged row; large arrays add nothing. Not
guaranteed: safety of frames from other sources. Decoding executes what the frames say, so only frames of authenticated
peers may be decoded: the driver and workers of one cluster. Clients are no peers (`ikebana.cluster.client_protocol`).
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias, cast, get_args

import numpy as np
import pyarrow as pa
import zmq
from pyarrow import types

from ikebana.cluster import plans, protocol
from ikebana.cluster.authentication import READABLE
from ikebana.cluster.shared_memory import SharedMemory, is_descriptor
from ikebana.encoding import Schema
from ikebana.operators.changes import Changes
from ikebana.runtime import messages
from ikebana.trace import Updates

Frames: TypeAlias = list[Any]
"""A pickle, then the memory of large arrays."""

LARGE = 16 << 10
"""Arrays of at least this size get a frame of their own; copying a smaller one is cheaper than a frame."""

PART_BYTES = 256 << 10
"""Frames are sent in parts of this size."""

_ALIGNMENT = 8
_CACHED_SCHEMAS = 1024


def encode(message: Any) -> Frames:
    """The frames of a message. They refer to the memory of its arrays, which must not change until they are sent."""
    frames: Frames = [b""]

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < LARGE:
            return True
        frames.append(raw)
        return False

    file = io.BytesIO()
    _Pickler(file, 5, buffer_callback=keep_in_pickle).dump(message)
    frames[0] = file.getvalue()
    return frames


def decode(frames: Sequence[Any]) -> Any:
    """The message of some frames. Its arrays are on top of the frames' memory."""
    return pickle.loads(frames[0], buffers=map(aligned, frames[1:]))


def send(socket: zmq.Socket[bytes], frames: Frames, *, to: bytes | None = None) -> None:
    """Send a message; `to` is the peer if the socket is a router. Large frames are not copied."""
    if to is not None:
        socket.send(to, zmq.SNDMORE)
    if len(frames) == 1 and len(frames[0]) < LARGE:  # nearly all messages
        socket.send(frames[0])
        return
    last = len(frames) - 1
    for at, frame in enumerate(frames):
        _send_frame(socket, frame, is_last=at == last)


def _send_frame(socket: zmq.Socket[bytes], frame: Any, *, is_last: bool) -> None:
    flags = 0 if is_last else zmq.SNDMORE
    size = memoryview(frame).nbytes
    if size < LARGE:
        socket.send(frame, flags)
    elif size < PART_BYTES:
        socket.send(frame, flags, copy=False)
    else:
        view = memoryview(frame).cast("B")
        for start in range(0, size - PART_BYTES + 1, PART_BYTES):
            socket.send(view[start : start + PART_BYTES], zmq.SNDMORE, copy=False)
        socket.send(view[size // PART_BYTES * PART_BYTES :], flags)


def receive_frames(socket: zmq.Socket[bytes], first: zmq.Frame | None = None) -> Frames:
    """Receive the frames of a message; `first` is its first part, if that was received already."""
    part: Any
    if first is None:
        part, more = socket.recv(), socket.get(zmq.RCVMORE)  # copying a small part is cheaper than wrapping it
    else:
        part, more = first.buffer, first.more
    if not more:  # nearly all messages
        return [part]
    frames: Frames = []
    parts: list[Any] = []
    while True:
        if len(part) == PART_BYTES and more:
            parts.append(part)
        else:
            frames.append(_joined(parts, part) if parts else part)
            parts = []
        if not more:
            return frames
        received = socket.recv(copy=False)
        part, more = received.buffer, received.more


def _joined(parts: list[Any], last: Any) -> Any:
    """The parts of a frame in one piece of memory; releases the parts.

    The memory is Arrow's, which keeps it for the next frame: writing to new memory would cost more than the copy.
    """
    frame = memoryview(pa.allocate_buffer(len(parts) * PART_BYTES + len(last))).cast("B")
    frame[len(parts) * PART_BYTES :] = last
    for at in range(len(parts)):
        frame[at * PART_BYTES : (at + 1) * PART_BYTES] = parts[at]
        parts[at] = None
    return frame


def decode_received(frames: Frames, memory: SharedMemory) -> Any:
    """The message of frames that were received, or of a descriptor of frames in shared memory."""
    return decode(memory.frames(bytes(frames[0])) if is_descriptor(frames[0]) else frames)


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received."""
    return bool(int(socket.get(zmq.EVENTS)) & READABLE)


# Reducers for pickle: a function that creates the value again, and its arguments.

_Reduced: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


def aligned(frame: Any) -> Any:
    """The frame's memory, or a copy if it is not aligned for compiled kernels."""
    view = memoryview(frame).toreadonly()
    address = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return view if address % _ALIGNMENT == 0 else bytes(view)


def _array(array: Any) -> Any:
    if array.dtype.kind not in "iufb" or array.ndim == 0:
        return array.__reduce_ex__(5)
    if array.size and array.ndim <= 2 and array.strides[-1] == 0:
        cells = array[0] if array.ndim == 1 else array[:, 0]
        return _constant_array, (cells.tolist(), array.shape, array.dtype.str)
    contiguous: Any = np.ascontiguousarray(array)
    return np.ndarray, (contiguous.shape, contiguous.dtype.str, pickle.PickleBuffer(contiguous))


def _constant_array(cells: Any, shape: tuple[int, ...], dtype: str) -> Any:
    array = np.array(cells, dtype)
    return np.lib.stride_tricks.as_strided(array, shape, (*array.strides, 0))


def _arrow_array(array: pa.Array) -> Any:
    kind = array.type
    if len(array) <= _FEW_ROWS and not array.offset and not array.null_count and types.is_primitive(kind):
        data = array.buffers()[1]
        stored = data.slice(0, -(-len(array) * kind.bit_width // 8)).to_pybytes() if len(array) else b""
        return _few_values, (_type_bytes(kind), len(array), stored)
    if not array.offset and array.get_total_buffer_size() < max(LARGE, 2 * array.nbytes):
        return array.__reduce__()
    buffers = _slice_buffers(array) if len(array) else None
    if buffers is None:
        return pa.concat_arrays([array]).__reduce__()
    return pa.Array.from_buffers, (array.type, len(array), buffers, array.null_count, array.offset % 8)


_FEW_ROWS = 64
"""Arrays of at most so many fixed-width values, as keys and single rows have them, are sent as their bytes."""


def _few_values(kind: bytes, rows: int, stored: bytes) -> pa.Array:
    return pa.Array.from_buffers(_unpickle_cached(kind), rows, [None, pa.py_buffer(stored)])


@lru_cache(_CACHED_SCHEMAS)
def _type_bytes(kind: pa.DataType) -> bytes:
    return pickle.dumps(kind, 5)


def _slice_buffers(array: pa.Array) -> list[pa.Buffer | None] | None:
    """The buffers of a slice, from the row at the preceding multiple of 8; None for rarer layouts.

    Only the offsets of strings are copied.
    """
    kind, first = array.type, array.offset // 8 * 8
    is_fixed = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    if not is_fixed and kind not in _OFFSET_TYPES:
        return None
    rows = array.offset % 8 + len(array)
    validity, *parts = array.buffers()
    valid = validity.slice(first // 8, -(-rows // 8)) if array.null_count else None
    if is_fixed:
        return [valid, parts[0].slice(first * kind.bit_width // 8, -(-rows * kind.bit_width // 8))]
    offsets: Any = np.frombuffer(parts[0], _OFFSET_TYPES[kind])[first : first + rows + 1]
    data = parts[1] and parts[1].slice(offsets[0], offsets[-1] - offsets[0])
    return [valid, pa.py_buffer(offsets - offsets[0]), data]


_OFFSET_TYPES: dict[pa.DataType, Any] = {
    pa.string(): np.dtype(np.int32),
    pa.binary(): np.dtype(np.int32),
    pa.large_string(): np.dtype(np.int64),
    pa.large_binary(): np.dtype(np.int64),
}


def _arrow_table(table: pa.Table) -> Any:
    if table.get_total_buffer_size() >= LARGE:
        return table.__reduce__()
    schema = table.schema.serialize().to_pybytes()
    if _has_dictionaries(schema):  # which are no part of record batches
        return table.__reduce__()
    return _table_of, (schema, [batch.serialize().to_pybytes() for batch in table.to_batches()])


def _table_of(serialized_schema: bytes, batches: list[bytes]) -> pa.Table:
    """The table of record batches in Arrow's IPC format, without the schema: a fourth of the time of a stream."""
    schema = _arrow_schema(serialized_schema)
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(batch), schema) for batch in batches], schema)


def _stage(stage: messages.Stage) -> Any:
    """Few rows are sent as a record batch: a fifth of the time of one column after the other."""
    batch = pa.RecordBatch.from_arrays(list(stage.columns), _column_numbers(len(stage.columns)))
    if batch.get_total_buffer_size() >= LARGE and batch.nbytes >= LARGE:  # the first is quicker
        return _fields_of_stage(stage)
    schema = batch.schema.serialize().to_pybytes()
    if _has_dictionaries(schema):
        return _fields_of_stage(stage)
    rows = batch.serialize().to_pybytes()
    return _stage_of, (stage.transaction, stage.table, stage.part, stage.attempt, schema, rows, stage.ops)


def _stage_of(transaction: int, table: str, part: Any, attempt: int, schema: bytes, rows: bytes, ops: Any) -> Any:
    batch = pa.ipc.read_record_batch(pa.py_buffer(rows), _arrow_schema(schema))
    return messages.Stage(transaction, table, part, attempt, tuple(batch.columns), ops)


@lru_cache
def _column_numbers(columns: int) -> list[str]:
    """Names of columns."""
    return [str(column) for column in range(columns)]


@lru_cache(_CACHED_SCHEMAS)
def _arrow_schema(serialized: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(serialized))


@lru_cache(_CACHED_SCHEMAS)
def _has_dictionaries(serialized: bytes) -> bool:
    return "dictionary<" in str(_arrow_schema(serialized))


def _schema(value: Any) -> _Reduced:
    return _unpickle_cached, (_pickle_cached(value),)


def _pickle_cached(value: Any) -> bytes:
    """The pickle of a schema or a field, from a cache."""
    entry = _pickles.get(id(value))
    if entry is None:
        if len(_pickles) >= _CACHED_SCHEMAS:
            _pickles.clear()
        entry = _pickles[id(value)] = (value, pickle.dumps(value, 5))
    return entry[1]


_pickles: dict[int, tuple[Any, bytes]] = {}  # by id; the value is kept, so that its id is not used again


@lru_cache(_CACHED_SCHEMAS)
def _unpickle_cached(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _dataclass_reducer(kind: type[Any]) -> Callable[[Any], _Reduced]:
    """The reducer of a dataclass: its constructor, and the values of its fields."""
    names = [field.name for field in fields(kind)]
    if len(names) < 2:
        return lambda value: (kind, tuple(getattr(value, name) for name in names))
    values = attrgetter(*names)
    return lambda value: (kind, values(value))


def _with_subclasses(kind: type[Any]) -> Iterable[type[Any]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


_UNIONS = (messages.Command, messages.PeerMessage, messages.Request, protocol.FromDriver, protocol.FromWorker)
_DATACLASSES = {kind for union in _UNIONS for kind in get_args(union)}
_DATACLASSES |= {Updates, Changes, plans.SealedInstall, protocol.Greeting}
_DATACLASSES |= {messages.Changed, messages.RowsOfKeys, messages.ResultShard}
_DATACLASSES |= {messages.Verdict, messages.ToPrepare, messages.PrepareVerdicts}
_DATACLASSES -= {messages.Install}  # must be sealed first
_fields_of_stage = _dataclass_reducer(messages.Stage)


class _Reducers(dict[type[Any], Callable[[Any], Any]]):
    """Reducers by type; for other types, those registered with `copyreg`."""

    def __missing__(self, kind: type[Any]) -> Callable[[Any], Any]:
        return cast(Any, copyreg.dispatch_table)[kind]


_REDUCERS = _Reducers(
    {
        **{kind: _dataclass_reducer(kind) for kind in _DATACLASSES},
        **{kind: _arrow_array for kind in _with_subclasses(pa.Array)},
        np.ndarray: _array,
        pa.Table: _arrow_table,
        messages.Stage: _stage,
        pa.Field: _schema,
        Schema: _schema,
    }
)


class _Pickler(pickle.Pickler):
    dispatch_table = _REDUCERS
