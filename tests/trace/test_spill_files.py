"""Traces whose batches are in spill files are like all others, whatever the disk does; and nothing is left behind."""

from __future__ import annotations

import errno
import gc
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema, spill_files
from ikebana.encoding.spill_files import MappedSpace, SpillFiles
from ikebana.errors import StorageError
from ikebana.operators import Arrange
from ikebana.trace import Handle
from ikebana.trace.batch import StoredBatch
from tests.spilling import IN_MEMORY, open_files
from tests.trace.strategies import Script, domains, examples, scripts
from tests.trace.test_oracle_trace import AGGREGATES, MANY, colliding
from tests.trace.trace_run import merge_all, play, rest

NAMED = Schema({"k": pa.int64()}, (pa.field("v", pa.string()), pa.field("w", pa.int64(), nullable=False)))
PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder) / "spill"


def opened(place: Path, batch_bytes: int | None = 1) -> SpillFiles:
    files = SpillFiles(str(place), batch_bytes)
    files.open()
    return files


def some_scripts() -> st.SearchStrategy[Script]:
    strings = st.sampled_from([64, 2, 0]).map(colliding)
    return scripts() | scripts(domains()) | scripts(strings) | scripts(st.just(AGGREGATES))


@examples(2, quick=0.7)
@given(some_scripts())
def test_oracle_trace_in_files(script: Script) -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        play(script, opened(Path(folder)))


@examples(0.1)
@given(scripts(st.just(MANY), heads=(256,), burst=1500, length=20), st.sampled_from([1, 4_000, 20_000]))
def test_oracle_trace_in_files_at_the_real_scale(script: Script, batch_bytes: int) -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        play(script, opened(Path(folder), batch_bytes))


@examples(1, quick=0.4)
@given(some_scripts(), st.lists(st.booleans(), min_size=1, max_size=20), st.sampled_from([0.0, 60.0]))
def test_oracle_trace_on_a_disk_that_is_often_full(script: Script, fails: list[bool], pause: float) -> None:
    with (
        TemporaryDirectory(dir=IN_MEMORY) as folder,
        patch.object(spill_files, "_allocate", FullDisk(fails)),
        patch.object(spill_files, "PAUSE_SECONDS", pause),
    ):
        play(script, opened(Path(folder)))


class FullDisk:
    """Allocates space, except at those of its calls that fail; they are repeated for ever."""

    def __init__(self, fails: list[bool]) -> None:
        self._fails, self._calls, self._allocate = fails, 0, spill_files._allocate

    def __call__(self, file: int, start: int, size: int) -> None:
        self._calls += 1
        if self._fails[self._calls % len(self._fails)]:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._allocate(file, start, size)


# What is in files, and what is not.


def filled(spill: SpillFiles | None, rows: int = 30_000) -> tuple[Arrange, Handle]:
    """A trace with numbers and strings, merged."""
    arrange = Arrange(NAMED, spill=spill)
    handle = arrange.handle()
    for epoch in range(6):
        keys = np.arange(epoch, rows, 6)
        texts = pa.array([None if key % 7 == 0 else f"text {key}" for key in keys.tolist()])
        arrange.update({"k": keys, "v": texts, "w": keys * 3}, (epoch,))
        arrange.advance((epoch + 1,))
        handle.advance((epoch,))
    rest(handle)
    merge_all(handle)
    return arrange, handle


def test_all_of_a_batch_but_bitmaps_and_constants_is_in_files(place: Path) -> None:
    in_memory = filled(None)[1]
    assert in_memory.mapped_bytes == 0
    _, handle = filled(opened(place))
    assert handle.nbytes == in_memory.nbytes  # wherever it is
    assert 0 <= handle.nbytes - handle.mapped_bytes <= 30_000 // 8 + 1_000
    assert handle.read((5,)).sort_by("k").equals(in_memory.read((5,)).sort_by("k"))
    (batch,) = handle.batches()
    assert isinstance(batch, StoredBatch)
    arrays = [batch.updates.key, batch.updates.val]
    arrays += [np.frombuffer(buffer, np.uint8) for column in batch.payload for buffer in column.buffers()[1:]]
    assert all(_is_mapped(array, place) for array in arrays)


def _is_mapped(array: Any, place: Path) -> bool:
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(text, 16) for text in line.split()[0].split("-"))
        if start <= address < end:
            return str(place) in line and line.split()[1] == "rw-s"
    return False


def test_small_batches_stay_in_memory(place: Path) -> None:
    _, handle = filled(opened(place, 10**9))
    assert handle.mapped_bytes == 0 and open_files(place) == []
    _, handle = filled(opened(place, None))
    assert handle.mapped_bytes == 0 and open_files(place) == []


# Files.


def test_files_are_private_have_no_names_and_end_with_their_batches(place: Path) -> None:
    arrange, handle = filled(opened(place))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    files = open_files(place)
    assert files and list(place.iterdir()) == []
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    del arrange
    handle.drop()
    del handle
    gc.collect()
    assert open_files(place) == []


def test_a_file_takes_the_space_that_its_batch_needs(place: Path) -> None:
    """Addresses are reserved, and a merge may need more space than its output; neither stays on the disk."""
    _, handle = filled(opened(place))
    (file,) = open_files(place)
    assert file.stat().st_size == spill_files.SEGMENT_BYTES
    arrays = 4 * len(NAMED.names)
    assert handle.mapped_bytes <= file.stat().st_blocks * 512 <= handle.mapped_bytes + arrays * PAGE


def test_the_space_of_rows_that_cancel_comes_back(place: Path) -> None:
    arrange, handle = filled(opened(place))
    keys = np.arange(0, 30_000, 2)
    kept = handle.read((5,))
    gone = kept.filter(np.isin(kept["k"].to_numpy(), keys))
    arrange.update({name: gone[name] for name in NAMED.names}, (6,), -1)
    before = handle.mapped_bytes
    arrange.advance((7,))
    handle.advance((6,))
    merge_all(handle)
    gc.collect()
    assert handle.mapped_bytes < 0.6 * before and handle.read((6,)).num_rows == 15_000
    assert sum(file.stat().st_blocks * 512 for file in open_files(place)) < 0.7 * before


def test_arrays_larger_than_a_file_get_one_of_their_own(place: Path) -> None:
    with patch.object(spill_files, "SEGMENT_BYTES", 4 * PAGE):
        space = MappedSpace(opened(place))
        arrays = [space.empty(size // 8) for size in (PAGE, 3 * PAGE, PAGE, 20 * PAGE, 8)]
        for number, array in enumerate(arrays):
            array[:] = number
        trimmed = [space.trimmed(array, len(array)) for array in arrays]
        assert [set(array.tolist()) for array in trimmed] == [{0}, {1}, {2}, {3}, {4}]
        assert space.mapped_bytes == 25 * PAGE + 8


@given(st.integers(1, 3), st.integers(1, 2000), st.data())
def test_twin_of_trimming_in_memory(lanes: int, rows: int, data: Any) -> None:
    kept = data.draw(st.integers(0, rows))
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        space = MappedSpace(opened(Path(folder)))
        array = space.empty((lanes, rows))
        array[:] = np.arange(lanes * rows).reshape(lanes, rows)
        expected = array[:, :kept].copy()
        trimmed = space.trimmed(array, kept)
        assert np.array_equal(trimmed, expected) and trimmed.flags.c_contiguous
        assert space.mapped_bytes == trimmed.nbytes


# Errors.


def test_a_full_disk_is_logged_once_and_batches_stay_in_memory(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with patch.object(spill_files, "_allocate", FullDisk([True])), caplog.at_level(logging.WARNING, "ikebana"):
        _, handle = filled(opened(place))
    assert handle.mapped_bytes == 0 and handle.read((5,)).num_rows == 30_000
    assert [record.message for record in caplog.records] == [
        f"cannot spill to {place}: [Errno 28] No space left on device; new batches stay in memory for a while"
    ]


def test_a_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot use the spill directory .*/file/spill(.|\n)*spill="):
        SpillFiles(str(tmp_path / "file" / "spill")).open()
