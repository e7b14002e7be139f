"""The primitive operations on local files.

`ikebana.storage.directory` calls these, and nothing else changes a local storage directory. A test replaces a `Disk`
by one in memory that forgets whatever was not synced.

Invariants: files have mode 0600 and directories 0700. Bytes are durable once `sync` has returned, and names once
`sync_directory` of their directory has returned.

Cost: that of the system call. Large writes bypass the system's cache (`ikebana.storage.direct_writes`). `sync` does not
write the times of a file (fdatasync).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from ikebana.storage.direct_writes import write_directly, write_views

Chunks: TypeAlias = Sequence[Any]
"""Bytes, or objects with the buffer protocol, that are written one after the other."""

_DIRECT_BYTES = 1 << 20
"""From this size on, writes bypass the system's cache."""


class Disk:
    """Local files, by absolute path; open files are file descriptors."""

    def make_directory(self, path: str) -> None:
        """Create a directory; it may exist."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def create(self, path: str) -> int:
        """Create a file that does not exist yet, and open it for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def reserve(self, file: int, start: int, size: int) -> None:
        """Extend a file by zeros, so that writing there needs no more space."""
        os.posix_fallocate(file, start, size)

    def write(self, file: int, chunks: Chunks, offset: int) -> int:
        """Write chunks at an offset; return where they end."""
        views = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
        write = write_directly if sum(map(len, views)) >= _DIRECT_BYTES else write_views
        return write(file, views, offset)

    def sync(self, file: int) -> None:
        """Make the bytes of a file durable."""
        os.fdatasync(file)

    def drop_cache(self, file: int, start: int, size: int) -> None:
        """Let the system use the memory in which it keeps bytes of a file that are synced, if it can."""
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(file, start, size, os.POSIX_FADV_DONTNEED)

    def sync_path(self, path: str) -> None:
        """Make the bytes of a file durable that is not open."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def truncate(self, file: int, size: int) -> None:
        """Remove the bytes of a file from `size` on."""
        os.ftruncate(file, size)

    def close(self, file: int) -> None:
        """Close a file, without a sync."""
        os.close(file)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing the target if it exists."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.sync_path(path)

    def delete(self, path: str) -> None:
        """Delete a file, or an empty directory."""
        if os.path.isdir(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def read(self, path: str, mapped: bool) -> pa.Buffer:
        """The bytes of a file: mapped into memory, or as a copy."""
        if os.path.getsize(path) == 0:
            return pa.py_buffer(b"")
        with pa.memory_map(path) if mapped else pa.OSFile(path) as file:
            return file.read_buffer()

    def size(self, path: str) -> int | None:
        """The number of bytes of a file; None if it does not exist."""
        try:
            return os.path.getsize(path)
        except FileNotFoundError:
            return None

    def tree(self, path: str) -> tuple[list[str], list[tuple[str, int]]]:
        """All directories, deepest first, and all files with their sizes, below a directory."""
        directories: list[str] = []
        files: list[tuple[str, int]] = []
        for folder, names, leaves in os.walk(path, topdown=False):
            directories += [os.path.join(folder, name) for name in names]
            for leaf in leaves:
                full = os.path.join(folder, leaf)
                size = self.size(full)
                if size is not None:  # it may have been deleted meanwhile
                    files.append((full, size))
        return directories, files
