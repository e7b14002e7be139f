"""The protocol between clients and workers: a closed set of messages, in an encoding that cannot run code.

A message has a header and at most one attachment. The header is JSON, and its form is declared by a dataclass of this
module (`ikebana.cluster.plain`). The attachment is a stream in Arrow's IPC format, or the text of a question. Nothing
that a client sends is ever unpickled, and neither is anything that it receives.

A client first sends `ClientHello` and waits for `Welcome`; every later message names the version of the protocol, too.
If the versions differ, the client gets an error that says which they are.

What a client sends, with the number under which it is answered:

hello    whether the worker has the same version of the protocol, and knows the key
stage    rows for a table, in a transaction
read     the rows of a held dataflow at an epoch
errors   the errors of a held dataflow at an epoch
changes  the changes of a held dataflow between two epochs
ask      a question for the driver, which the worker passes on unread
cancel   the answer to a request is not needed any more

Whether a client may do this is decided by its key (`ikebana.cluster.client_keys`).

Checked here: the form of a message. Arrow's reader checks the form of a stream; staged columns are also validated in
full (offsets, lengths, text that is not UTF-8), since compiled kernels rely on that. Whether they fit the table is
checked by the worker.

Cost: encoding a message copies its columns; decoding staged rows takes a pass over offsets and text, 6 ns a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana import errors
from ikebana.cluster.codec import Frames, aligned
from ikebana.cluster.plain import UndecodableError, encode, from_plain, parse, to_plain
from ikebana.cluster.protocol import Ask, CancelRequest, Refusal, Reply, Response
from ikebana.errors import DataflowError, IkebanaError
from ikebana.operators.row_errors import Errors, RowError
from ikebana.runtime.messages import Read, ReadChanges, ReadErrors, ResultShard, Stage

PROTOCOL_VERSION = 1
"""The version of this protocol. A change of any message is a new version."""

_MAX_HEADER_BYTES = 1 << 20
_OPS = "ikebana op"
"""The name of the column with the op of each staged row, if not all rows have the same op."""

_EPOCHS = "ikebana epoch"
"""The name of the column with the epoch of each changed row."""


# Messages that only clients and workers exchange.


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The first message of a client."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to `ClientHello`: the client has the right version, and its key is valid."""


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """A question for the driver: the worker passes it on unread. The answer is bytes, too."""

    content: bytes


ClientRequest: TypeAlias = ClientHello | Stage | Read | ReadErrors | ReadChanges | ClientQuestion
"""What a client may send."""


# The forms of headers.


@dataclass(frozen=True, slots=True)
class _Header:
    """What every message of a client has; `body` is of one of the forms below."""

    protocol: int
    number: int
    kind: Literal["hello", "stage", "read", "errors", "changes", "ask", "cancel"]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Nothing:
    pass


@dataclass(frozen=True, slots=True)
class _Stage:
    transaction: int
    table: str
    part: tuple[int, int]
    attempt: int
    op: int | None  # of all rows; None if the stream has a column with the op of each row


@dataclass(frozen=True, slots=True)
class _Read:
    dataflow: str
    hold: int
    at: int
    after: int = -1  # only for changes


@dataclass(frozen=True, slots=True)
class _Error:
    binding: int | None
    reason: str
    row: str
    rounds: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class _Reply:
    """What every message to a client has. The other fields depend on the kind of the reply."""

    protocol: int
    number: int
    kind: Literal["welcome", "done", "rows", "errors", "changes", "answer", "refusal"]
    errors: tuple[_Error, ...] = ()
    total: int = 0
    error: str = ""  # the name of its class
    what: str = ""
    detail: str = ""
    hint: str = ""


# Requests: encoded by clients, decoded by workers.


def encode_request(message: Ask | CancelRequest) -> Frames:
    """The frames of a client's message; raises if clients cannot send it."""
    if isinstance(message, CancelRequest):
        return [_header(message.number, "cancel", _Nothing())]
    number, request = message.number, message.request
    match request:
        case ClientHello():
            return [_header(number, "hello", _Nothing())]
        case Stage(transaction, table, part, attempt, columns, ops):
            op, batch = _staged_batch(columns, ops)
            return [_header(number, "stage", _Stage(transaction, table, part, attempt, op)), _to_ipc(batch)]
        case Read(dataflow, (at,), int(hold), True, None, None):
            return [_header(number, "read", _Read(dataflow, hold, at))]
        case ReadErrors(dataflow, int(at), int(hold)):
            return [_header(number, "errors", _Read(dataflow, hold, at))]
        case ReadChanges(dataflow, after, at, hold):
            return [_header(number, "changes", _Read(dataflow, hold, at, after))]
        case ClientQuestion(content):
            return [_header(number, "ask", _Nothing()), content]
    raise DataflowError(
        f"a client cannot send {type(request).__name__}",
        detail="clients stage rows, read what is held for them until it is complete, and ask the driver",
    )


def decode_request(frames: Sequence[Any]) -> Ask | CancelRequest:
    """The message of a client; raises `UndecodableError` if it is none, `VersionError` if it is of another version."""
    header: _Header = _decode_header(frames, _Header)
    number = header.number
    attachment: Any = frames[1] if len(frames) == 2 else None
    if (attachment is not None) != (header.kind in ("stage", "ask")):
        raise UndecodableError(f"a message of kind {header.kind!r} has {len(frames)} frames")
    match header.kind:
        case "cancel":
            return CancelRequest(number)
        case "hello":
            return Ask(number, ClientHello())
        case "ask":
            return Ask(number, ClientQuestion(bytes(attachment)))
        case "stage":
            return Ask(number, _decode_stage(from_plain(header.body, _Stage), attachment))
    body = from_plain(header.body, _Read)
    match header.kind:
        case "read":
            return Ask(number, Read(body.dataflow, (body.at,), body.hold, wait=True))
        case "errors":
            return Ask(number, ReadErrors(body.dataflow, body.at, body.hold))
    return Ask(number, ReadChanges(body.dataflow, body.after, body.at, body.hold))


class VersionError(UndecodableError):
    """A message is of another version of the protocol."""

    number = 0
    """The number of the message."""


def _check_version(header: Any) -> None:
    """Raise if a header is of another version; these two fields are the same in all versions."""
    version, number = (header.get(name) if isinstance(header, dict) else None for name in ("protocol", "number"))
    if type(version) is int and version != PROTOCOL_VERSION:
        error = VersionError(
            f"a message has version {version} of the client protocol, and this process has version {PROTOCOL_VERSION}",
            hint="install the same version of ikebana on the driver and on all executors",
        )
        error.number = number if type(number) is int else 0
        raise error


def _header(number: int, kind: Any, body: Any) -> bytes:
    return encode(_Header(PROTOCOL_VERSION, number, kind, to_plain(body, type(body))), _Header)


def _decode_header(frames: Sequence[Any], kind: Any) -> Any:
    if not 1 <= len(frames) <= 2 or len(frames[0]) > _MAX_HEADER_BYTES:
        raise UndecodableError("a message does not consist of a header and at most one attachment")
    header = parse(frames[0])
    _check_version(header)
    return from_plain(header, kind)


def _staged_batch(columns: Sequence[pa.Array], ops: Any) -> tuple[int | None, pa.RecordBatch]:
    names = [str(at) for at in range(len(columns))]
    if isinstance(ops, int):
        return ops, pa.RecordBatch.from_arrays(list(columns), names)
    return None, pa.RecordBatch.from_arrays([*columns, pa.array(ops, pa.int8())], [*names, _OPS])


def _decode_stage(body: _Stage, attachment: Any) -> Stage:
    table = _from_ipc(attachment)
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise UndecodableError("staged rows are not valid", detail=str(error)[:200]) from None
    columns = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
    ops: Any = body.op
    if ops is None:
        if (
            not columns
            or table.schema.names[-1] != _OPS
            or table.schema.types[-1] != pa.int8()
            or columns[-1].null_count
        ):
            raise UndecodableError("staged rows have neither one op nor a column of ops")
        ops = np.asarray(columns.pop())
    return Stage(body.transaction, body.table, body.part, body.attempt, tuple(columns), ops)


# Replies: encoded by workers, decoded by clients.


def encode_reply(reply: Reply) -> Frames:
    """The frames of a reply to a client."""
    if isinstance(reply, Refusal):
        text = {"error": reply.kind.__name__, "what": reply.what, "detail": reply.detail, "hint": reply.hint}
        return [_reply(reply.number, "refusal", **text)]
    number, value = reply.number, reply.value
    match value:
        case None:
            return [_reply(number, "done")]
        case Welcome():
            return [_reply(number, "welcome")]
        case bytes():
            return [_reply(number, "answer"), value]
        case ResultShard(rows, row_errors, total):
            return [_reply(number, "rows", errors=_plain_errors(row_errors), total=total), _to_ipc(rows)]
        case Counter():
            return [_reply(number, "errors", errors=_plain_errors(value))]
        case (None, None):
            return [_reply(number, "changes")]
        case (epochs, pa.Table() as changes):
            with_epochs = changes.append_column(_EPOCHS, pa.array(epochs, pa.int64()))
            return [_reply(number, "changes"), _to_ipc(with_epochs)]
    raise DataflowError(f"a client cannot be sent {type(value).__name__}")


def decode_reply(frames: Sequence[Any]) -> Reply:
    """The reply of a worker."""
    header: _Reply = _decode_header(frames, _Reply)
    attachment = frames[1] if len(frames) == 2 else None
    match header.kind:
        case "refusal":
            return Refusal(header.number, _error_class(header.error), header.what, header.detail, header.hint)
        case "welcome":
            return Response(header.number, Welcome())
        case "answer" if attachment is not None:
            return Response(header.number, bytes(attachment))
        case "rows" if attachment is not None:
            return Response(header.number, ResultShard(_from_ipc(attachment), _errors(header.errors), header.total))
        case "errors":
            return Response(header.number, _errors(header.errors))
        case "changes":
            return Response(header.number, (None, None) if attachment is None else _changes(_from_ipc(attachment)))
    return Response(header.number)


def _reply(number: int, kind: Any, **values: Any) -> bytes:
    return encode(_Reply(PROTOCOL_VERSION, number, kind, **values), _Reply)


def _error_class(name: str) -> type[IkebanaError]:
    """The class of an error by its name: one of `ikebana.errors`."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, IkebanaError) else DataflowError


def _plain_errors(row_errors: Errors) -> tuple[_Error, ...]:
    return tuple(_Error(*error, count) for error, count in row_errors.items())


def _errors(plain: Sequence[_Error]) -> Errors:
    return Counter({RowError(error.binding, error.reason, error.row, error.rounds): error.count for error in plain})


def _changes(table: pa.Table) -> tuple[Any, pa.Table]:
    return table[_EPOCHS].to_numpy(), table.drop_columns([_EPOCHS])


# Arrow streams.


def _to_ipc(rows: pa.Table | pa.RecordBatch) -> Any:
    """Rows as an Arrow stream, in memory of the right size."""
    size = pa.MockOutputStream()
    _write_ipc(rows, size)
    buffer = pa.allocate_buffer(size.size())
    _write_ipc(rows, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write_ipc(rows: pa.Table | pa.RecordBatch, sink: Any) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)


def _from_ipc(stream: Any) -> pa.Table:
    try:
        table = pa.ipc.open_stream(pa.py_buffer(aligned(stream))).read_all()
        _ = table.schema.names  # raises where a name is not UTF-8
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UndecodableError("a message has no valid Arrow stream", detail=str(error)[:200]) from None
