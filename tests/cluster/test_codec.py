"""Messages survive the wire: every command, every letter, every call, whatever arrays they carry."""

from __future__ import annotations

import dataclasses
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zmq

from ikebana.cluster import codec, protocol
from ikebana.cluster.authentication import MEMBERS, KeyPair, Sockets
from ikebana.cluster.network import ListenAddress
from ikebana.encoding import Schema
from ikebana.encoding.lanes import constant, constant_diffs, is_constant
from ikebana.errors import TimeError
from ikebana.operators.changes import Changes
from ikebana.runtime import messages
from ikebana.trace import Updates

FIELDS = (pa.field("name", pa.string(), nullable=True), pa.field("n", pa.int64(), nullable=False))
SCHEMA = Schema([FIELDS[0]], [FIELDS[1]])
MANY = 100_000


def changes(rows: int) -> Changes:
    return Changes.of(
        FIELDS, {"name": [None, "a", "bc", "d"] * (rows // 4), "n": np.arange(rows)}, (3, 1), [1, -2] * (rows // 2)
    )


def updates(rows: int) -> Updates:
    return Updates.of(SCHEMA, {"name": ["x", "y"] * (rows // 2), "n": np.arange(rows)}, (3,))


def message(body: Any) -> messages.DataflowMessage:
    return messages.DataflowMessage("view", 2, 17, 1, body)


PEER_MESSAGES = {
    "nothing": [],
    "proposals": [message((5, 0)), messages.DataflowMessage("other", 0, 1, 1, (2, 2))],
    "round": [message(None), message(3)],
    "no updates": [message(Updates.empty(SCHEMA, 2))],
    "few updates": [message(updates(4))],
    "many updates": [message(updates(MANY)), message(updates(2))],
    "failed": [messages.Failed("view", 0, "ValueError: no")],
}
COMMANDS = {
    "create input": messages.CreateInput("edges", FIELDS, "input edges"),
    "push few": messages.Push("edges", changes(4)),
    "push many": messages.Push("edges", changes(MANY)),
    "advance": messages.Advance(7),
    "close input": messages.CloseInput("edges"),
    "demand": messages.Demand("view", 7),
    "fail": messages.Fail("view", "its rows are gone"),
    "retire": messages.Retire("view"),
    "create table": messages.CreateTable(messages.TableSpec("people", FIELDS, "keyed", SCHEMA, "table people")),
    "replace table": messages.ReplaceTable(messages.TableSpec("people", FIELDS, "keyed", SCHEMA, "table people 2")),
    "copy rows": messages.CopyRows("people", "table people", {"age": pa.array([7], pa.int32())}),
    "drop table": messages.DropTable("people"),
    "begin snapshot": messages.BeginSnapshot(9),
    "keep history": messages.KeepHistory(4),
    "stage": messages.Stage(5, "people", ("driver", 1), 0, changes(4).columns, np.array([0, 1, 2, 0], np.int8)),
    "stage many": messages.Stage(5, "people", 3, 1, changes(MANY).columns, 0),
    "commit": messages.Commit(((5, 7), (6, 9)), 4, ("people",)),
    "abort": messages.Abort(5, 6),
    "subscribe": messages.Subscribe(9, "view", 3, True, 16, 1 << 20, 1000, 1 << 30),
    "resume": messages.Resume(9, 16, 1 << 20),
    "unsubscribe": messages.Unsubscribe(9),
    "hold": messages.Hold(10, "view", 3),
    "release": messages.Release(10),
    "reply": messages.DriverAnswer(3, ("orders", 4)),
}
CALLS = {
    "peers": protocol.PeerAddresses(
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2"), ((17, 3), None), (b"token", b""), (17, 4, 99)
    ),
    "ping": protocol.Ask(6, messages.Ping("view")),
    "grant": protocol.SetGrant(7, b"key", protocol.Grant(60.0, ((5, "people"),), ((10, "view"),), 3)),
    "grant itself": protocol.Grant(60.0),
    "no grant": protocol.SetGrant(8, b"key", None),
    "wait": protocol.Ask(1, messages.Wait("view", 4)),
    "read": protocol.Ask(2, messages.Read("view", (3, 0))),
    "check": protocol.Ask(4, messages.Check(5, (("people", ((("driver", 1), 0), (3, 1))),))),
    "check and commit": protocol.Ask(
        4, messages.CheckAndCommit(messages.Check(5, (("people", ((3, 1),)),)), messages.Commit(((5, 8),), 4))
    ),
    "replies": [protocol.Response(4, messages.RowsOfKeys(3, updates(4).to_table(), Counter())), protocol.Response(5)],
    "status": protocol.Ask(5, messages.Status()),
    "verdict": protocol.Response(4, messages.Verdict((messages.Problem("people", "exists", 1, ("name='x'",)),))),
    "changed": protocol.Notification(
        [messages.Changed(9, 4, np.arange(4), updates(4).to_table()), messages.SubscriptionEnded(9, "no")]
    ),
    "forget": protocol.CancelRequest(2),
    "idle": protocol.Idle(3),
    "stop": protocol.StopProcess(),
    "hello": protocol.WorkerHello("tcp://127.0.0.1:3", "tcp://127.0.0.1:4", 17, (17, 5), b"token", None),
    "ready": protocol.Ready(),
    "counts": protocol.Response(3, protocol.Counts(10, 11, 5)),
    "count": protocol.Counts(10, 11, 5),
    "notification": protocol.Notification([("view", 3), updates(4).to_table()]),
    "small table": protocol.Response(2, updates(4).to_table()),
    "large table": protocol.Response(2, updates(MANY).to_table()),
    "refusal": protocol.Refusal(2, TimeError, "what", "detail", "hint"),
    "crash": protocol.Crash("KeyError: 'x'", "Traceback ..."),
    "greeting": protocol.Greeting(1, b"token", (1, 2, 3)),
}


def assert_same(one: Any, other: Any) -> None:
    """Equal in every part, of the same kinds; lanes that are held once still are."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)
        assert not one.size or is_constant(one) == is_constant(other)
    elif isinstance(one, pa.Table | pa.Array | pa.Field):
        assert one.equals(other)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


@pytest.mark.parametrize(
    "message", [*PEER_MESSAGES.values(), *COMMANDS.values(), *CALLS.values()], ids=[*PEER_MESSAGES, *COMMANDS, *CALLS]
)
def test_round_trip(message: Any) -> None:
    assert_same(message, codec.decode(codec.encode(message)))


def test_every_command_and_call_is_tried() -> None:
    tried = {type(request) for request in (*COMMANDS.values(), *CALLS.values())} | {messages.Install}
    named = {
        kind for kind in vars(protocol).values() if isinstance(kind, type) and kind.__module__ == protocol.__name__
    }
    assert set(messages.Command.__args__) | named <= tried


# Memory.


def test_large_arrays_are_not_copied() -> None:
    given = updates(MANY)
    frames = codec.encode([message(given)])
    assert len(frames[0]) < 2000
    received = codec.decode(frames)[0].body
    assert np.shares_memory(received.val, given.val) and np.shares_memory(received.key, given.key)
    assert received.payload[0].buffers()[2].address == given.payload[0].buffers()[2].address
    assert not received.val.flags.writeable


def test_constant_lanes_stay_one_cell() -> None:
    lanes = [constant(7, MANY), constant(0, MANY, np.int32), constant_diffs(np.array([1, -3]), MANY)]
    frames = codec.encode(lanes)
    assert len(frames) == 1 and len(frames[0]) < 500
    assert_same(lanes, codec.decode(frames))


@pytest.mark.parametrize(
    "array",
    [
        np.empty(0, np.int64),
        np.empty((0, 2), np.int64),
        constant(3, 0),
        np.array(5),
        np.arange(12).reshape(3, 4).T,
        np.arange(10)[::-2],
        np.array([True, False]),
        np.array([1.5, np.inf]),
        np.array(["a", None], object),
        np.array(["2020-01-01"], "M8[D]"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_of_any_form(array: Any) -> None:
    received = codec.decode(codec.encode(array))
    assert received.dtype == array.dtype and received.shape == array.shape and (received == array).all()


@pytest.mark.parametrize("array", [pa.array(np.arange(MANY)), pa.array(["abc", None] * MANY)], ids=["fixed", "string"])
def test_of_a_slice_only_the_slice_is_sent(array: pa.Array) -> None:
    for part in (array[50:60], array[:10], array[:0]):
        frames = codec.encode(part)
        assert len(frames) == 1 and len(frames[0]) < 600
        assert codec.decode(frames).equals(part)


KINDS: dict[str, Any] = {
    "integers": pa.array([None, *range(40)]),
    "bits": pa.array([True, False, None, True, True] * 8),
    "dates": pa.array(range(40), pa.date32()),
    "decimals": pa.array([None, *map(Decimal, range(40))], pa.decimal128(12, 2)),
    "fixed bytes": pa.array([b"abc", None] * 20, pa.binary(3)),
    "strings": pa.array(["", "abc", None, "de", "f"] * 8),
    "large strings": pa.array(["", "abc", None, "de", "f"] * 8, pa.large_string()),
    "bytes": pa.array([b"", b"abc", None, b"de", b"f"] * 8),
    "empty strings": pa.array([""] * 40),
    "nothing": pa.nulls(40),
    "lists": pa.array([[1, 2], None, [], [3]] * 10),
    "structs": pa.array([{"x": 1, "y": "a"}, None] * 20),
    "dictionary": pa.array(["a", "b", None, "a"] * 10).dictionary_encode(),
    "string views": pa.array(["", "abc", None, "a text that is longer than others"] * 10, pa.string_view()),
}


@pytest.mark.parametrize("array", KINDS.values(), ids=KINDS.keys())
def test_slices_of_any_kind(array: pa.Array) -> None:
    for start, end in [(0, 40), (0, 5), (3, 4), (8, 24), (9, 33), (7, 40), (20, 20), (40, 40)]:
        received = codec.decode(codec.encode(array[start:end]))
        received.validate(full=True)
        assert received.equals(array[start:end]) and received.null_count == array[start:end].null_count
        assert received[1:].equals(array[start:end][1:])


@pytest.mark.parametrize("array", KINDS.values(), ids=KINDS.keys())
def test_small_tables_of_any_kind(array: pa.Array) -> None:
    table = pa.table({"x": array, "n": np.arange(len(array))}).replace_schema_metadata({"a": "b"})
    for part in (table, table[9:33], table[:0], pa.concat_tables([table[:3], table[5:6]])):
        received = codec.decode(codec.encode(part))
        received.validate(full=True)
        assert received.equals(part, check_metadata=True)


@pytest.mark.parametrize("array", KINDS.values(), ids=KINDS.keys())
def test_few_staged_rows_of_any_kind(array: pa.Array) -> None:
    for start, end in [(0, 40), (3, 4), (9, 33), (20, 20)]:
        columns = (pa.array(np.arange(start, end)), array[start:end])
        received = codec.decode(codec.encode(messages.Stage(5, "people", ("driver", 1), 0, columns, 1)))
        for column, sent in zip(received.columns, columns, strict=True):
            column.validate(full=True)
            assert column.type == sent.type and column.equals(sent) and column.null_count == sent.null_count


def test_slices_are_sent_from_where_they_are() -> None:
    array = pa.array(np.arange(MANY))
    frames = codec.encode(array[8:-3])
    assert len(frames) == 2
    address = np.frombuffer(frames[1], np.uint8).__array_interface__["data"][0]
    assert address == array.buffers()[1].address + 64 and frames[1].nbytes == 8 * (MANY - 11)


def test_memory_that_kernels_cannot_read_is_copied() -> None:
    given = updates(MANY)
    frames = codec.encode(given)
    shifted = [frames[0], *(memoryview(b"x" + bytes(frame))[1:] for frame in frames[1:])]
    received = codec.decode(shifted)
    assert received.val.flags.aligned
    assert_same(given, received)


def test_through_authenticated_sockets() -> None:
    keys, other = KeyPair.new(), KeyPair.new()
    server, client = Sockets(keys, ListenAddress("127.0.0.1")), Sockets(other)
    server.allow(MEMBERS, [other.public])
    try:
        inbox, endpoint = server.listen(zmq.PULL)
        outbox = client.connect(zmq.PUSH, endpoint, keys.public)
        sent = [*PEER_MESSAGES.values(), *COMMANDS.values()]
        for message in sent:
            codec.send(outbox, codec.encode(message))
        for message in sent:
            assert inbox.poll(5000)
            assert codec.is_readable(inbox)
            assert_same(message, codec.decode(codec.receive_frames(inbox)))
        assert not codec.is_readable(inbox)
    finally:
        client.close()
        server.close()
