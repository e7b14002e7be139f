"""Directories in filesystems of `pyarrow.fs`, such as object stores, and the directory at any path or URI.

Files are written as a whole, once, and never renamed. On object stores nobody sees a file before all of it is there; on
other filesystems a crash may leave a part of one under its name. A write that fails may have stored all of the file, or
a part of it, under its name; nothing is deleted then, since others may have read it already.

Requests take milliseconds there, so many files are read or deleted by several threads. Object stores have no
directories: Arrow leaves an empty object in place of one whose last file it deletes, and nothing else depends on them.

What is shown of a URI, in messages too, has no credentials.

Cost: one request to write a file of up to a few megabytes, two to read one, three to delete one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from ikebana.errors import StorageError
from ikebana.storage import s3
from ikebana.storage.directory import Appender, Directory, FileEntry, LocalDirectory, Pace, at_once
from ikebana.storage.disk import Chunks
from ikebana.storage.faults import FaultPoint, is_installed, reach

_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Types of filesystems that have no directories."""

_THREADS = 16
"""How many files are read or deleted at once."""

_JOINED_BYTES = 4 << 20
"""Files of up to so many bytes are handed to the client as a whole."""

T = TypeVar("T")


def open_directory(place: str | os.PathLike[str] | Directory) -> Directory:
    """The directory at a path or URI; it need not exist yet.

    >>> open_directory("/data/ikebana").uri
    '/data/ikebana'
    >>> open_directory("file:///data/ikebana").uri
    '/data/ikebana'
    """
    if isinstance(place, Directory):
        return place
    text = os.fspath(place)
    if "://" not in text:
        return LocalDirectory(text)
    try:
        return _open_uri(text)
    except (OSError, ValueError, pa.ArrowException) as error:
        address = without_credentials(text)
        raise StorageError(
            f"cannot open the storage directory {address}",
            detail=str(error).replace(_quoted(text), address),
            hint=s3.hint_for(error)
            or "give a local path, or a URI that pyarrow.fs supports: hdfs://, s3://, gs://, abfs://",
        ) from None  # the cause may have the whole URI


def _open_uri(uri: str) -> Directory:
    parsed = urlsplit(uri)
    if parsed.scheme == "file":
        return LocalDirectory(unquote(parsed.path))
    if parsed.scheme == "s3":
        filesystem, path, may_create = s3.open_s3(uri)
        return ArrowDirectory(filesystem, path, uri, creates_bucket=may_create)
    filesystem, path = pyarrow.fs.FileSystem.from_uri(_quoted(uri))
    return ArrowDirectory(filesystem, path, uri)


def _quoted(uri: str) -> str:
    return uri.replace(" ", "%20")


def without_credentials(uri: str) -> str:
    """A URI as it is shown: without user, password and options.

    >>> without_credentials("s3://key:secret@bucket/shop?region=eu-west-1")
    's3://bucket/shop'
    """
    try:
        parsed = urlsplit(uri)
    except ValueError:
        return f"{uri.partition('://')[0]}://..."
    user, _, host = parsed.netloc.rpartition("@")
    container = f"{user.partition(':')[0]}@" if user and parsed.scheme.startswith("abfs") else ""
    return f"{parsed.scheme}://{container}{host}{unquote(parsed.path)}"


class ArrowDirectory(Directory):
    """A directory in a filesystem of `pyarrow.fs`."""

    can_append = can_map = False

    def __init__(
        self, filesystem: pyarrow.fs.FileSystem, path: str, place: str = "", *, creates_bucket: bool = False
    ) -> None:
        """`place` is the URI by which other processes can open it, if there is one."""
        self._filesystem, self._root = filesystem, path.rstrip("/")
        self._has_directories = filesystem.type_name not in _OBJECT_STORES
        self.place = place or f"{filesystem.type_name}:{path}"
        self.uri = without_credentials(place) if place else self.place
        self._bucket = self._root.partition("/")[0] if creates_bucket else ""  # to create before the first file
        self._known: set[str] = set()

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _hint(self, error: Exception) -> str:
        return s3.hint_for(error) or super()._hint(error)

    # Reading.

    def read(self, path: str, *, mapped: bool = True) -> pa.Buffer:
        with self._errors("read", path), self._filesystem.open_input_file(self._at(path)) as file:
            return file.read_buffer(file.size())

    def read_all(self, paths: Sequence[str]) -> Iterator[pa.Buffer]:
        return self._in_threads(self.read, paths)

    def size(self, path: str) -> int | None:
        with self._errors("read", path):
            size: int | None = self._filesystem.get_file_info(self._at(path)).size
            return size

    def files(self, path: str = "") -> list[FileEntry]:
        start = len(self._root) + 1
        files = [FileEntry(info.path[start:], info.size) for info in self._infos(path) if info.is_file]
        return sorted(files, key=lambda entry: entry.path)

    def folders(self, path: str) -> list[str]:
        return sorted(info.base_name for info in self._infos(path, recursive=False) if not info.is_file)

    def _infos(self, path: str, *, recursive: bool = True) -> list[Any]:
        """What the client says of everything below a path."""
        selector = pyarrow.fs.FileSelector(self._at(path), recursive=recursive, allow_not_found=True)
        with self._errors("list", path):
            infos: list[Any] = self._filesystem.get_file_info(selector)
        return infos

    def _in_threads(self, function: Callable[[str], T], paths: Sequence[str]) -> Iterator[T]:
        """What a function returns for the paths, in their order."""
        if len(paths) < 2:
            yield from map(function, paths)
            return
        with ThreadPoolExecutor(min(_THREADS, len(paths)), thread_name_prefix="ikebana storage") as threads:
            yield from threads.map(function, paths)

    # Writing.

    def write(self, path: str, chunks: Chunks, pace: Pace = at_once) -> None:
        with self._errors("write", path):
            self._make_parent(path)
            reach(FaultPoint.PUT, path)
            self._put(path, chunks)

    def _make_parent(self, path: str) -> None:
        """Create the directory of a file, where there are directories, or the bucket, if that is asked for."""
        parent = os.path.dirname(self._at(path)) if self._has_directories else self._bucket
        if parent and parent not in self._known:
            reach(FaultPoint.MAKE_DIRECTORY, path)
            self._filesystem.create_dir(parent, recursive=True)
            self._known.add(parent)

    def _put(self, path: str, chunks: Chunks) -> None:
        if sum(memoryview(chunk).nbytes for chunk in chunks) <= _JOINED_BYTES:
            content = b"".join(chunks)
            chunks = [content[: len(content) // 2], content[len(content) // 2 :]] if is_installed() else [content]
        with self._filesystem.open_output_stream(self._at(path), compression=None) as stream:
            for at, chunk in enumerate(chunks):
                if at == len(chunks) // 2:
                    reach(FaultPoint.PUT_HALF, path)
                stream.write(chunk)

    def create(self, path: str, head: Chunks) -> Appender:
        raise StorageError(f"cannot append to {self.full(path)}", detail="the filesystem writes files as a whole")

    def sync(self, path: str) -> None:
        """Files are durable once they are there."""

    # Deleting.

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        reached = []
        try:
            for path in paths:
                reach(FaultPoint.DELETE, path)
                reached.append(path)
        finally:
            for _ in self._in_threads(self._delete, reached):
                pass

    def _delete(self, path: str) -> None:
        with self._errors("delete", path), suppress(FileNotFoundError):
            self._filesystem.delete_file(self._at(path))

    def delete_empty_directories(self, path: str) -> None:
        infos, full = self._infos(path), self._at(path)
        if (infos or self._has_directories) and not any(info.is_file for info in infos):
            self._known = {known for known in self._known if not f"{known}/".startswith(f"{full}/")}
            with self._errors("delete", path), suppress(FileNotFoundError):
                self._filesystem.delete_dir(full)
