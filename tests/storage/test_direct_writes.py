"""Large writes past the system's cache: the file has the same bytes as after a usual write."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.storage import direct_writes
from ikebana.storage.direct_writes import write_directly
from ikebana.storage.disk import Disk

BLOCK = 4096
SIZES = st.one_of(st.integers(1, 100), st.integers(1, 5).map(lambda blocks: blocks * BLOCK), st.integers(1, 20_000))


def written(path: Path, before: bytes, sizes: Sequence[int], offset: int) -> tuple[bytes, bytes]:
    """A file after a direct write into it, and what it should be."""
    chunks = [os.urandom(size) for size in sizes]
    path.write_bytes(before)
    file = os.open(path, os.O_WRONLY)
    try:
        end = write_directly(file, [memoryview(chunk) for chunk in chunks], offset)
    finally:
        os.close(file)
    content = b"".join(chunks)
    assert end == offset + len(content)
    return path.read_bytes(), before[:offset].ljust(offset, b"\0") + content + before[end:]


@given(st.lists(SIZES, min_size=1, max_size=6), st.integers(0, 3 * BLOCK), st.integers(0, 40_000))
def test_twin_direct_write(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], offset: int, existing: int
) -> None:
    path = tmp_path_factory.mktemp("direct") / "file"
    with patch.object(direct_writes, "_BUFFER_BYTES", 2 * BLOCK), patch.object(direct_writes, "_free_buffers", []):
        found, expected = written(path, os.urandom(existing), sizes, offset)
    assert found == expected


@pytest.mark.parametrize("call", ["fcntl", "pwrite"])
def test_a_filesystem_without_direct_writes(tmp_path: Path, call: str) -> None:
    def refuse(*arguments: Any) -> Any:
        if call == "fcntl" and arguments[1] != direct_writes.fcntl.F_SETFL:
            return 0
        raise OSError(errno.EINVAL, "not here")

    with patch.object(direct_writes.fcntl if call == "fcntl" else os, call, refuse):
        found, expected = written(tmp_path / "file", b"", [3 * BLOCK, 10], 8)
    assert found == expected


def test_a_disk_writes_large_chunks_directly(tmp_path: Path) -> None:
    disk, chunks = Disk(), [os.urandom(8), os.urandom(3 << 20), os.urandom(100)]
    file = disk.create(str(tmp_path / "file"))
    with patch("ikebana.storage.disk.write_directly", wraps=write_directly) as direct:
        assert disk.write(file, chunks, 64) == 64 + sum(map(len, chunks))
        disk.write(file, [b"small"], 0)
    disk.close(file)
    assert direct.call_count == 1
    assert (tmp_path / "file").read_bytes() == b"small".ljust(64, b"\0") + b"".join(chunks)
