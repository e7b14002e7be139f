"""The client protocol: messages survive the way, and nothing else is decoded, whatever its bytes say."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster import client_protocol, codec
from ikebana.cluster.client_protocol import (
    ClientHello,
    ClientQuestion,
    VersionError,
    Welcome,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from ikebana.cluster.plain import UndecodableError
from ikebana.cluster.protocol import Ask, CancelRequest, Refusal, Response
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.row_errors import RowError
from ikebana.runtime import messages
from ikebana.runtime.messages import Read, ReadChanges, ReadErrors, ResultShard, Stage

COLUMNS = (pa.array([1, 2, 3]), pa.array(["a", None, "ü"]))
TABLE = pa.table({"k": COLUMNS[0], "s": COLUMNS[1]})
ERRORS = Counter({RowError(None, "division by zero", "k = 1", (2, 3)): 2, RowError(7, "no", "k = 2"): -1})

REQUESTS = {
    "hello": ClientHello(),
    "stage": Stage(5, "people", (3, 1), 17, COLUMNS, 0),
    "stage with ops": Stage(5, "people", (3, 1), 17, COLUMNS, np.array([0, 1, 2], np.int8)),
    "read": Read("view", (8,), 3, wait=True),
    "errors": ReadErrors("view", 8, 3),
    "changes": ReadChanges("view", 4, 8, 3),
    "ask": ClientQuestion(b"anything"),
}
VALUES = {
    "nothing": None,
    "welcome": Welcome(),
    "answer": b"bytes",
    "rows": ResultShard(TABLE, ERRORS, 9),
    "errors": ERRORS,
    "no errors": Counter(),
    "no changes": (None, None),
    "changes": (np.array([4, 4, 5]), TABLE),
}


def comparable(value: Any) -> Any:
    """A value that can be compared: arrays as lists."""
    if isinstance(value, np.ndarray | pa.Array):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    if isinstance(value, Stage):
        return tuple(comparable(getattr(value, name)) for name in Stage.__slots__)
    return value


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_requests_survive(request_: Any) -> None:
    decoded = decode_request(encode_request(Ask(9, request_)))
    assert isinstance(decoded, Ask) and decoded.number == 9
    assert comparable(decoded.request) == comparable(request_)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_answers_survive(value: Any) -> None:
    decoded = decode_reply(encode_reply(Response(9, value)))
    assert isinstance(decoded, Response) and decoded.number == 9
    assert comparable(decoded.value) == comparable(value)


def test_cancellations_and_refusals_survive() -> None:
    assert decode_request(encode_request(CancelRequest(4))) == CancelRequest(4)
    refusal = Refusal.of(4, TimeError("what", detail="why", hint="then"))
    assert decode_reply(encode_reply(refusal)) == refusal


@pytest.mark.parametrize(
    "request_",
    [
        messages.Push("edges", None),  # type: ignore[arg-type]
        messages.Advance(3),
        messages.Retire("view"),
        messages.DropTable("people"),
        messages.Status(),
        messages.Commit(((5, 7),), 4),
        Read("view", (8,), None, wait=True),  # without a hold
        Read("view", (8,), 3),
        Read("view", (8,), 3, wait=True, keys={"k": [1]}),
        Read("view", (8, 1), 3, wait=True),
    ],
    ids=repr,
)
def test_other_messages_cannot_be_sent(request_: Any) -> None:
    with pytest.raises(DataflowError, match="a client cannot send"):
        encode_request(Ask(0, request_))


# Attacks.


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    evil = pickle.dumps(ReducesTo(str(mark)))
    frames = encode_request(Ask(0, REQUESTS["stage"]))
    question = encode_request(Ask(0, ClientQuestion(evil)))
    for attack in ([evil], [evil, evil], [frames[0], evil], codec.encode(Ask(0, messages.Status()))):
        with pytest.raises(UndecodableError):
            decode_request(attack)
    assert decode_request(question).request == ClientQuestion(evil)  # type: ignore[union-attr]
    assert not mark.exists()
    pickle.loads(evil)
    assert mark.exists()


class ReducesTo:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_garbage_is_undecodable(frames: list[bytes]) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(UndecodableError):
            decode(frames)


HEADERS = [json.loads(bytes(encode_request(Ask(9, request))[0])) for request in REQUESTS.values()]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.data())
def test_changed_headers_are_decoded_or_undecodable(data: st.DataObject) -> None:
    header = json.loads(json.dumps(data.draw(st.sampled_from(HEADERS))))
    target = header["body"] if header["body"] and data.draw(st.booleans()) else header
    name = data.draw(st.sampled_from([*target, "more"]))
    target[name] = data.draw(JSON)
    attachment = data.draw(st.sampled_from([[], [b""], [bytes(encode_request(Ask(0, REQUESTS["stage"]))[1])]]))
    try:
        message = decode_request([json.dumps(header).encode(), *attachment])
    except UndecodableError:
        return
    assert isinstance(message, Ask | CancelRequest) and -(2**63) <= message.number < 2**63


@given(st.data())
def test_damaged_streams_are_valid_columns_or_undecodable(data: st.DataObject) -> None:
    header, stream = map(bytes, encode_request(Ask(9, REQUESTS["stage"])))
    damaged = bytearray(stream)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        message = decode_request([header, bytes(damaged)])
    except UndecodableError:
        return
    assert isinstance(message, Ask)
    for column in message.request.columns:
        column.validate(full=True)
        column.to_pylist()


def test_text_that_is_not_utf8_is_undecodable() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(UndecodableError, match="not valid"):
        decode_request(encode_request(Ask(0, Stage(5, "people", (3, 1), 17, (bad,), 0))))


def test_regression_a_column_name_that_is_not_utf8_is_undecodable() -> None:
    header, _ = encode_request(Ask(9, REQUESTS["stage"]))
    batch = pa.record_batch([pa.array([1])], schema=pa.schema([pa.field(b"\x80", pa.int64())]))
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(UndecodableError, match="no valid Arrow stream"):
        decode_request([header, stream.getvalue()])


def test_versions_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = encode_request(Ask(12, ClientHello()))
    monkeypatch.setattr(client_protocol, "PROTOCOL_VERSION", 2)
    with pytest.raises(VersionError, match=r"version 1 .* version 2(.|\n)*same version of ikebana") as caught:
        decode_request(frames)
    assert caught.value.number == 12
    with pytest.raises(VersionError):
        decode_request([b'{"protocol": 3, "number": 1, "new": true}'])


def test_a_huge_header_is_undecodable() -> None:
    with pytest.raises(UndecodableError, match="header"):
        decode_request([b" " * (2 << 20)])
    with pytest.raises(UndecodableError):
        decode_request([b"[" * 100_000])
