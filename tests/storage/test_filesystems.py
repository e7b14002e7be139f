"""Storage directories in filesystems of `pyarrow.fs` other than disks and S3, and what is used of a filesystem.

None of these can append or lock, and nothing is renamed on them. On those with directories, files are seen while they
are written, as on HDFS. A filesystem of `fsspec` is a `PyFileSystem`, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

from ikebana.errors import StorageError
from ikebana.storage import ArrowDirectory, Directory
from ikebana.storage.files import TORN, encode_json, read_json
from ikebana.storage.filesystems import _JOINED_BYTES
from tests.storage.harness import Harness
from tests.storage.short_leases import short_leases

USED = {"get_type_name", "get_file_info", "get_file_info_selector", "create_dir", "delete_file", "delete_dir"}
USED |= {"open_input_file", "open_output_stream", "normalize_path"}
"""What is used of a filesystem: nothing that moves, copies or appends to a file, and nothing that is not atomic."""


class Watched(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]
    """A filesystem in Python, which passes everything on to another one, and notes what is used."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, used: set[str]) -> None:
        self._filesystem, self._used = filesystem, used

    def get_type_name(self) -> str:
        return "watched"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self._filesystem.get_file_info(paths)

    def get_file_info_selector(self, selector: pyarrow.fs.FileSelector) -> Any:
        return self._pass_on("get_file_info", selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._pass_on("create_dir", path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._pass_on("delete_dir", path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._pass_on("delete_dir_contents", path)

    def delete_root_dir_contents(self) -> None:
        self._pass_on("delete_root_dir_contents")

    def delete_file(self, path: str) -> None:
        self._pass_on("delete_file", path)

    def move(self, source: str, target: str) -> None:
        self._pass_on("move", source, target)

    def copy_file(self, source: str, target: str) -> None:
        self._pass_on("copy_file", source, target)

    def open_input_stream(self, path: str) -> Any:
        return self._pass_on("open_input_stream", path)

    def open_input_file(self, path: str) -> Any:
        return self._pass_on("open_input_file", path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self._pass_on("open_output_stream", path, compression=None)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        return self._pass_on("open_append_stream", path)

    def _pass_on(self, name: str, *arguments: Any, **options: Any) -> Any:
        self._used.add(name)
        return getattr(self._filesystem, name)(*arguments, **options)


def local(root: Path) -> Directory:
    return ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(root))


def subtree(root: Path) -> Directory:
    return ArrowDirectory(pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem()), "a shop")


def python(root: Path) -> Directory:
    return watched(root, set())


def watched(root: Path, used: set[str]) -> Directory:
    filesystem = pyarrow.fs.PyFileSystem(Watched(pyarrow.fs.LocalFileSystem(), used))
    return ArrowDirectory(filesystem, str(root / "a shop"))


def in_memory(root: Path) -> Directory:
    """Arrow's own, of which there is a new one for each root."""
    filesystem, _ = pyarrow.fs.FileSystem.from_uri("mock:///")
    return ArrowDirectory(filesystem, "shops/a shop")


every_filesystem = pytest.mark.parametrize("new", [local, subtree, python, in_memory])


@pytest.fixture(autouse=True)
def leases() -> Iterator[None]:
    with short_leases():
        yield


@every_filesystem
def test_what_is_stored_comes_back_with_another_number_of_workers(
    tmp_path: Path, new: Callable[[Path], Directory]
) -> None:
    directory = new(tmp_path)
    system = Harness(lambda: directory)
    system.open(2)
    system.put("table", {"columns": ["k", "v"]})
    for shards, following in pairwise((2, 3, 1, 2)):
        for number in range(4):
            system.transact(Counter({(100 * shards + 2 * number, "a"): 1, (100 * shards + 2 * number + 1, "b"): 1}))
            if number == 2:
                for shard in range(shards):
                    system.snapshot(shard)
        system.collect_old()
        system.trim()
        system.reopen(following)
    assert len(system.model.rows) == 24
    system.store.close()


@every_filesystem
def test_files_are_written_read_listed_and_deleted(tmp_path: Path, new: Callable[[Path], Directory]) -> None:
    directory = new(tmp_path)
    large = [b"x" * _JOINED_BYTES, b"y" * 10]
    assert directory.files() == [] and directory.folders("one") == [] and directory.size("one/a") is None
    directory.write("one/a", [b"some", b"thing"])
    directory.write("one/two/a file", large)
    assert bytes(directory.read("one/a")) == b"something"
    contents = directory.read_all(["one/two/a file", "one/a"])
    assert [bytes(content) for content in contents] == [b"".join(large), b"something"]
    assert [(entry.path, entry.size) for entry in directory.files()] == [
        ("one/a", 9),
        ("one/two/a file", _JOINED_BYTES + 10),
    ]
    assert directory.folders("") == ["one"] and directory.folders("one") == ["two"]
    with pytest.raises(FileNotFoundError):
        directory.read("one/b")
    directory.delete_all(["one/two/a file", "one/missing"])
    directory.delete_empty_directories("one/two")
    directory.delete_empty_directories("one")
    assert directory.folders("one") == [] and directory.size("one/a") == 9
    directory.write("one/two/again", [b""])
    assert directory.folders("one") == ["two"] and directory.size("one/two/again") == 0
    with pytest.raises(StorageError, match="cannot append to"):
        directory.create("one/c", [b"head"])


@every_filesystem
def test_a_file_that_is_seen_while_it_is_written_is_not_there_yet(
    tmp_path: Path, new: Callable[[Path], Directory]
) -> None:
    directory, content = new(tmp_path), encode_json({"a": 1})
    for size in range(len(content)):
        directory.write(f"{size}", [content[:size]])
        assert read_json(directory, f"{size}", "nothing") is TORN
    directory.write("whole", [content])
    assert read_json(directory, "whole", "nothing") == {"a": 1}


def test_little_is_used_of_a_filesystem(tmp_path: Path) -> None:
    used: set[str] = set()
    directory = watched(tmp_path, used)
    system = Harness(lambda: directory)
    for shards in (2, 1):
        system.open(shards)
        system.put("table", {"columns": ["k", "v"]})
        system.transact(Counter({(shards, "a"): 1, (shards + 2, "b"): 1}))
        for shard in range(shards):
            system.snapshot(shard)
        system.collect_old()
        system.trim()
        for worker in system.workers:
            worker.close()
        system.store.close()
    assert used <= USED and {"open_output_stream", "open_input_file", "delete_file", "create_dir"} <= used


def test_errors_of_a_filesystem_are_errors_of_storage(tmp_path: Path) -> None:
    class Full(Watched):
        def open_output_stream(self, path: str, metadata: Any) -> Any:
            raise OSError(28, "No space left on device")

    filesystem = pyarrow.fs.PyFileSystem(Full(pyarrow.fs.LocalFileSystem(), set()))
    with pytest.raises(StorageError, match="cannot write py::watched") as caught:
        ArrowDirectory(filesystem, str(tmp_path)).write("one/a", [b"something"])
    assert "No space left" in str(caught.value)
    assert not isinstance(caught.value, pa.ArrowException)
