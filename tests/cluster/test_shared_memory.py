"""Shared memory: frames arrive unchanged, free segments are used again, and no memory is left behind."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster import codec
from ikebana.cluster import shared_memory as module
from ikebana.cluster.processes import Processes
from ikebana.cluster.shared_memory import MIN_SHARED_BYTES, Sender, SharedMemory, is_descriptor
from ikebana.engine import Engine
from ikebana.errors import DataflowError
from tests.clusters import EDGES, SOON, is_running, within

pytestmark = [
    pytest.mark.usefixtures("forked_workers"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no anonymous memory"),
]


def held_here() -> int:
    """How many pieces of shared memory this process has mapped or open."""
    gc.collect()
    mapped = sum("memfd:ikebana" in line for line in Path("/proc/self/maps").read_text().splitlines())
    opened = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            opened += "memfd:ikebana" in os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the listing's own
            continue
    return mapped + opened


class Pair:
    """A sender and a receiver, both in this process."""

    def __init__(self, *, receivers: int = 1, copies: bool = False) -> None:
        self.sender, self.receiver = SharedMemory(receivers), SharedMemory(1, copies=copies)
        channel = self.sender.connect(self.receiver.attach(self.sender.address))
        assert channel is not None
        self.channel: Sender = channel

    def pass_on(self, frames: list[Any]) -> list[Any]:
        descriptor = self.channel.share(frames)
        assert descriptor is not None and is_descriptor(descriptor) and len(descriptor) < 200
        return self.receiver.frames(descriptor)

    def segments(self) -> list[int]:
        return [segment.serial for segment in self.channel._segments]

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    before = held_here()
    pair = Pair()
    yield pair
    pair.close()
    assert held_here() <= before


def bytes_of(count: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(count)


# Frames.


def test_frames_come_out_as_they_went_in_and_cannot_be_changed(pair: Pair) -> None:
    given = [bytes_of(MIN_SHARED_BYTES), b"", bytes_of(17), bytes_of(3 * MIN_SHARED_BYTES + 5)]
    received = pair.pass_on(given)
    assert [bytes(frame) for frame in received] == given
    assert all(frame.__array_interface__["data"][0] % 64 == 0 for frame in received)
    assert not any(frame.flags.writeable for frame in received)
    with pytest.raises(ValueError, match="WRITEABLE"):
        received[0].flags.writeable = True


def test_arrays_are_on_top_of_shared_memory(pair: Pair) -> None:
    given = {"a": np.arange(MIN_SHARED_BYTES), "b": np.arange(MIN_SHARED_BYTES)[::-1], "c": "small"}
    frames = codec.encode(given)
    received = codec.decode([frames[0], *pair.pass_on(frames[1:])])
    assert all(np.array_equal(received[name], given[name]) for name in "ab") and received["c"] == "small"
    kept = received["b"][5:10]
    del received
    gc.collect()
    pair.pass_on([bytes(8 * MIN_SHARED_BYTES)])
    assert len(pair.segments()) == 2, "a slice of one array keeps all of it"
    assert kept.tolist() == given["b"][5:10].tolist()


def test_small_messages_go_through_sockets(pair: Pair) -> None:
    assert pair.channel.share([bytes(MIN_SHARED_BYTES - 64)]) is None
    assert pair.channel.share([]) is None
    assert pair.channel.share([bytes(MIN_SHARED_BYTES // 2), bytes(MIN_SHARED_BYTES // 2)]) is not None
    assert not is_descriptor(codec.encode(7)[0])


def test_segments_are_used_again(pair: Pair) -> None:
    for attempt in range(100):
        given = bytes_of(MIN_SHARED_BYTES + 1000 * attempt, attempt)
        assert bytes(pair.pass_on([given])[0]) == given
    assert len(pair.segments()) <= 3
    assert pair.channel.share([bytes(MIN_SHARED_BYTES)]) is not None  # not received yet: it must not be used again
    assert pair.channel.share([bytes(MIN_SHARED_BYTES)]) is not None
    assert len(set(pair.segments())) >= 2


@given(st.lists(st.tuples(st.integers(0, 5 * MIN_SHARED_BYTES), st.integers(0, 5), st.booleans()), max_size=30))
def test_what_is_held_does_not_change(steps: list[tuple[int, int, bool]]) -> None:
    """Messages of all sizes, of which some are kept for a while."""
    pair, held = Pair(receivers=8), list[tuple[bytes, Any]]()
    for at, (size, dropped, trims) in enumerate(steps):
        sent = [bytes_of(size, at), bytes_of(MIN_SHARED_BYTES, at + 1)]
        descriptor = pair.channel.share(sent)
        received = sent if descriptor is None else pair.receiver.frames(descriptor)
        held += zip(sent, received, strict=True)
        del received
        if dropped < len(held):
            del held[dropped]
        if trims:
            pair.sender.trim()
            pair.receiver.trim()
        assert all(bytes(now) == then for then, now in held)
    pair.close()
    assert all(bytes(now) == then for then, now in held), "arrays outlive what they came through"


# Bounds.


def test_a_receiver_that_keeps_much_gets_copies() -> None:
    pair = Pair(receivers=8)
    kept = [pair.pass_on([bytes_of(MIN_SHARED_BYTES, at)])[0] for at in range(100)]
    assert len(pair.segments()) <= 8
    assert all(bytes(frame) == bytes_of(MIN_SHARED_BYTES, at) for at, frame in enumerate(kept))
    pair.close()


def test_what_does_not_fit_goes_through_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 4 << 20)
    pair = Pair()
    assert pair.channel.share([bytes(3 << 20)]) is None
    descriptors = [pair.channel.share([bytes([at]) * (1 << 20)]) for at in range(6)]
    assert [descriptor is not None for descriptor in descriptors] == [True] * 4 + [False] * 2
    for at, descriptor in enumerate(descriptors[:4]):
        assert descriptor is not None
        assert set(bytes(pair.receiver.frames(descriptor)[0])) == {at}
    assert pair.channel.share([bytes(2 << 20)]) is not None, "free segments make room for larger ones"
    assert sum(segment.capacity for segment in pair.channel._segments) <= 4 << 20
    pair.close()


@pytest.mark.parametrize("call", ["memfd_create", "posix_fallocate"])
def test_without_memory_or_descriptors_messages_go_through_sockets(
    pair: Pair, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def fail(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        raise OSError(errno.ENOSPC, "no space")

    pair.pass_on([bytes(MIN_SHARED_BYTES)])
    pair.sender.trim()
    descriptors = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        assert [pair.channel.share([bytes(MIN_SHARED_BYTES)]) for _ in range(50)] == [None] * 50
        assert calls == 1, "the system is not asked again at once"
    assert len(os.listdir("/proc/self/fd")) == descriptors
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.0)
    pair.channel._retry_at = 0.0
    assert pair.channel.share([bytes(MIN_SHARED_BYTES)]) is not None


def test_trim_releases_everything_that_is_not_in_use(pair: Pair) -> None:
    kept = pair.pass_on([bytes_of(MIN_SHARED_BYTES)])
    before = held_here()
    for size in (1, 2, 5, 20):
        pair.pass_on([bytes(size * MIN_SHARED_BYTES)])
    assert held_here() > before
    pair.sender.trim()
    pair.receiver.trim()
    assert held_here() <= before
    assert bytes(kept[0]) == bytes_of(MIN_SHARED_BYTES)
    assert bytes(pair.pass_on([bytes_of(MIN_SHARED_BYTES, 2)])[0]) == bytes_of(MIN_SHARED_BYTES, 2)


def test_a_receiver_can_have_copies_of_its_own() -> None:
    pair = Pair(copies=True)
    received = [pair.pass_on([bytes_of(MIN_SHARED_BYTES, at)]) for at in range(5)]
    assert len(pair.segments()) == 1
    assert all(bytes(frames[0]) == bytes_of(MIN_SHARED_BYTES, at) for at, frames in enumerate(received))
    pair.close()


# Tokens.


def test_only_processes_that_have_read_the_token_get_segments(pair: Pair, tmp_path: Path) -> None:
    assert pair.sender.connect(b"") is None and pair.sender.connect(bytes(32)) is None
    other = SharedMemory(1)
    reading, writing = os.pipe()
    with (tmp_path / "file").open("w+b") as file:
        for stranger in (reading, writing, file.fileno(), 9999):
            assert other.attach((os.getpid(), stranger)) == b""
    assert other.attach((2**22 + 1, 3)) == b"" and other.attach(None) == b"" and other.attach([]) == b""
    descriptor = pair.channel.share([bytes(MIN_SHARED_BYTES)])
    assert descriptor is not None
    with pytest.raises(DataflowError, match="not known here"):
        other.frames(descriptor)
    other.close()
    for end in (reading, writing):
        os.close(end)


def test_systems_without_such_memory_share_none(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    none = SharedMemory(2)
    assert none.address is None and none.connect(b"") is None
    assert none.attach(pair.sender.address) == pair.sender._token, "it can still receive"
    none.trim()
    none.close()


def test_a_fork_frees_nothing(pair: Pair) -> None:
    kept = pair.pass_on([bytes_of(MIN_SHARED_BYTES)])
    child = os.fork()
    if not child:
        del kept
        os._exit(0)
    os.waitpid(child, 0)
    pair.pass_on([bytes(MIN_SHARED_BYTES)])
    assert bytes(kept[0]) == bytes_of(MIN_SHARED_BYTES)
    assert len(pair.segments()) == 2


# End.

SENDER = """
import sys, time
from ikebana.cluster.shared_memory import SharedMemory

memory = SharedMemory(1)
print(*memory.address, flush=True)
channel = memory.connect(bytes.fromhex(sys.stdin.readline()))
print(channel.share([b"x" * 1_000_000]).hex(), flush=True)
time.sleep(1000)
"""


def test_arrays_outlive_a_killed_sender() -> None:
    before = held_here()
    sender = subprocess.Popen([sys.executable, "-c", SENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert sender.stdin is not None and sender.stdout is not None
    memory = SharedMemory(1)
    token = memory.attach([int(number) for number in sender.stdout.readline().split()])
    assert len(token) == 32
    print(token.hex(), file=sender.stdin, flush=True)
    (frame,) = memory.frames(bytes.fromhex(sender.stdout.readline()))
    sender.kill()
    sender.wait()
    assert frame.tobytes() == b"x" * 1_000_000
    sender.communicate()
    memory.close()
    del frame
    assert held_here() <= before


def test_a_message_that_is_not_received_disappears_with_its_sender(pair: Pair) -> None:
    assert pair.channel.share([bytes(MIN_SHARED_BYTES)]) is not None  # the fixture checks that nothing is left


# Clusters.


def shares(cluster: Processes) -> bool:
    return all(link.shares_memory for link in cluster._connections._links)


def large(cluster: Processes, name: str) -> int:
    """A program whose workers exchange a few MB; returns what must be 0."""
    engine = Engine(cluster=cluster)
    edges = engine.input(name, EDGES)
    view = engine.install(f"{name} by dst", edges.select("dst", "src").arrange("dst"))
    size = 100_000
    for epoch in range(4):
        edges.insert({"src": np.arange(size) + epoch * size, "dst": np.arange(size)[::-1]})
        engine.advance()
        view.wait(epoch)
    table = view.read()
    view.drop()
    assert table.num_rows == 4 * size
    wrong = (table["src"].to_numpy() % size + table["dst"].to_numpy()) != size - 1
    return int(wrong.sum())


def shared_files() -> set[str]:
    """The files in shared memory; folders there are those of other tests."""
    with os.scandir("/dev/shm") as entries:  # whose types are known even if they are deleted meanwhile
        return {entry.name for entry in entries if not entry.is_dir()}


def test_clusters_on_one_host_share_memory_and_leave_nothing() -> None:
    files, before = shared_files(), held_here()
    with Processes(2) as cluster:
        assert shares(cluster)
        assert large(cluster, "shared") == 0
        assert held_here() > before
        ours = [f"/proc/{pid}/maps" for pid in cluster.pids]
        assert all("memfd:ikebana" in Path(path).read_text() for path in ours)
    assert held_here() <= before and shared_files() <= files


def test_idle_clusters_release_memory() -> None:
    with Processes(2) as cluster:
        before = held_here()
        assert large(cluster, "idle") == 0
        assert within(SOON, lambda: held_here() <= before)
        assert large(cluster, "idle again") == 0


def test_a_driver_that_cannot_share_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(os, "memfd_create")
        cluster = Processes(2)
    with cluster:
        assert not shares(cluster)
        assert large(cluster, "unshared") == 0


def test_a_killed_worker_leaves_nothing_in_the_driver() -> None:
    before = held_here()
    cluster = Processes(2)
    assert large(cluster, "killed") == 0
    os.kill(cluster.pids[0], signal.SIGKILL)
    with pytest.raises(DataflowError, match="worker 0 has died"):
        cluster.run()
    cluster.close()
    assert held_here() <= before and not any(map(is_running, cluster.pids))


DRIVER = """
import time
from ikebana.cluster.processes import Processes
from tests.cluster.test_shared_memory import large

if __name__ == "__main__":
    cluster = Processes(2)
    assert large(cluster, "driver") == 0
    print(*cluster.pids, flush=True)
    time.sleep(1000)
"""


def test_a_killed_driver_leaves_nothing_at_all() -> None:
    files = shared_files()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    driver.send_signal(signal.SIGKILL)
    driver.wait(SOON)
    driver.communicate()
    assert len(pids) == 2 and within(SOON, lambda: not any(map(is_running, pids)))
    assert shared_files() <= files  # anonymous memory disappears with the processes


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_without_a_free_descriptor_a_receiver_waits(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    sending, receiving = SharedMemory(1), SharedMemory(1)
    sender = sending.connect(receiving.attach(sending.address))
    assert sender is not None
    frame = np.arange(100_000)
    descriptor = sender.share([frame])
    assert descriptor is not None
    remaining, map_ = [failures], module._map

    def exhausted(*args: Any) -> Any:
        if remaining[0]:
            remaining[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return map_(*args)

    monkeypatch.setattr(module, "_map", exhausted)
    monkeypatch.setattr(module, "_DESCRIPTOR_RETRY_SECONDS", 0.001)
    (received,) = receiving.frames(descriptor)
    assert (received.view(np.int64) == frame).all()
    del received
    for memory in (sending, receiving):
        memory.trim()
        memory.close()


def test_a_receiver_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    sending, receiving = SharedMemory(1), SharedMemory(1)
    sender = sending.connect(receiving.attach(sending.address))
    assert sender is not None
    descriptor = sender.share([np.arange(100_000)])
    assert descriptor is not None
    monkeypatch.setattr(module, "_map", raises(OSError(errno.EMFILE, "Too many open files")))
    monkeypatch.setattr(module, "_DESCRIPTOR_SECONDS", 0.01)
    with pytest.raises(OSError, match="Too many open files"):
        receiving.frames(descriptor)
    for memory in (sending, receiving):
        memory.close()


def raises(error: Exception) -> Any:
    def function(*_: Any) -> Any:
        raise error

    return function
