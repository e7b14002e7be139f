"""Pipes: messages arrive whole and once, whoever else writes; what does not fit goes another way."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster import codec
from ikebana.cluster.links import InOrder, Link
from ikebana.cluster.pipes import MOST_BYTES, PipeReader, PipeWriter
from ikebana.cluster.processes import Processes
from ikebana.cluster.shared_memory import SharedMemory
from ikebana.engine import Engine

pytestmark = [
    pytest.mark.usefixtures("forked_workers"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system has no /proc"),
]


@contextmanager
def pipe() -> Iterator[tuple[PipeReader, PipeWriter]]:
    reader = PipeReader()
    writer = PipeWriter(reader.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        reader.close()


@given(st.lists(st.binary(max_size=300) | st.integers(0, MOST_BYTES).map(bytes), max_size=30))
def test_messages_arrive_in_order(messages: list[bytes]) -> None:
    with pipe() as (reader, writer):
        received: list[bytes] = []
        for message in messages:
            while not writer.send(message):
                received += reader.receive()
        while len(received) < len(messages):
            received += reader.receive()
        assert received == messages
        assert not reader.receive()


def test_messages_of_many_senders_stay_whole() -> None:
    def send(writer: PipeWriter, sender: int) -> None:
        for size in range(0, 3000, 30):
            while not writer.send(bytes([sender]) * (size + 1)):
                pass

    with pipe() as (reader, writer):
        writers = [writer, *(PipeWriter(reader.address) for _ in range(3))]
        threads = [threading.Thread(target=send, args=(writer, at)) for at, writer in enumerate(writers)]
        for thread in threads:
            thread.start()
        received: Counter[bytes] = Counter()
        while received.total() < 100 * len(writers):
            received.update(reader.receive())
        for thread in threads:
            thread.join()
        assert received == Counter(bytes([at]) * (size + 1) for at in range(4) for size in range(0, 3000, 30))
        for other in writers[1:]:
            other.close()


def test_what_does_not_fit_is_not_sent() -> None:
    with pipe() as (reader, writer):
        assert not writer.send(bytes(MOST_BYTES + 1))
        sent = 0
        while writer.send(bytes(MOST_BYTES)):
            sent += 1
        received: list[bytes] = []
        while more := reader.receive():
            received += more
        assert received == [bytes(MOST_BYTES)] * sent


def test_a_pipe_that_is_gone_or_another_one_is_not_used() -> None:
    with pipe() as (reader, _):
        pid, file, inode = reader.address
        assert PipeWriter.connect((pid, file, inode + 1)) is None
        assert PipeWriter.connect(None) is None
    assert PipeWriter.connect((pid, file, inode)) is None


SIZES = st.sampled_from([1, 100, 3000, 5000, 20_000, 300_000])


class Receiver:
    """A receiver of messages in this process, by all ways."""

    def __init__(self) -> None:
        self.context, self.reader = zmq.Context(), PipeReader()
        self.socket, sending = self.context.socket(zmq.PULL), self.context.socket(zmq.PUSH)
        self.socket.bind("inproc://messages")
        sending.connect("inproc://messages")
        self.sent, self.memory = SharedMemory(1), SharedMemory(1)
        self.arrived, self.link = InOrder(self.memory), Link(sending, 7)

    def share(self) -> None:
        self.link.share(self.sent.connect(self.memory.attach(self.sent.address)), self.reader.address)

    def receive(self) -> list[Any]:
        """What has arrived and can be taken, first that which has come through the pipe."""
        frames = [[content] for content in self.reader.receive()]
        while codec.is_readable(self.socket):
            frames.append(codec.receive_frames(self.socket))
        taken = [message for content in frames for message in self.arrived.take(content)]
        assert all(sender == 7 for sender, _ in taken)
        return [message for _, message in taken]

    def close(self) -> None:
        self.link.close()
        self.reader.close()
        self.context.destroy(linger=0)
        for memory in (self.sent, self.memory):
            memory.close()


@given(st.lists(st.tuples(SIZES, st.booleans(), st.booleans())), st.integers(0, 9))
def test_messages_of_all_sizes_arrive_in_order_by_whatever_way(
    script: list[tuple[int, bool, bool]], first_shared: int
) -> None:
    """The pipe is used from some message on, and is full now and then, since the receiver does not always receive."""
    receiver = Receiver()
    sent, received = list[tuple[int, int]](), list[Any]()
    for at, (size, is_array, receives) in enumerate(script):
        if at == first_shared:
            receiver.share()
        receiver.link.send((at, size, np.arange(size) if is_array else bytes(size)))
        sent.append((at, size))
        if receives:
            received += receiver.receive()
    while len(received) < len(sent):
        received += receiver.receive()
    assert [(at, size) for at, size, _ in received] == sent
    assert all(len(content) == size for _, size, content in received)
    del received
    receiver.close()


def test_a_full_pipe_does_not_change_the_order() -> None:
    receiver = Receiver()
    receiver.share()
    for at in range(100):
        receiver.link.send((at, bytes(3000)))
    received = list[Any]()
    while len(received) < 100:
        received += receiver.receive()
    assert [at for at, _ in received] == list(range(100))
    receiver.close()


def test_workers_that_exchange_small_and_large_messages() -> None:
    with Engine(cluster=Processes(2)) as engine:
        rows = engine.table("rows", {"id": pa.int64(), "k": pa.int64()}, key="id")
        counts = engine.install("counts", rows.count("k"))
        for at in range(20):
            rows.insert({"id": [2 * at, 2 * at + 1], "k": [at % 5, at % 3]})
        rows.insert({"id": np.arange(100, 30_100), "k": np.arange(30_000) % 7})
        assert sum(counts.to_arrow()["count"].to_pylist()) == 30_040
