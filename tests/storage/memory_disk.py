"""A disk in memory that forgets, when it crashes, some of what was not synced.

Names: creations, renames and deletions are durable once their directory was synced; of the others, in the order in
which they were made, a crash keeps any number. Contents: of what was written since the last sync of a file, a crash
keeps any sectors, and of what extended it, any length.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from ikebana.storage.disk import Chunks, Disk

SECTOR = 512


class Crash(BaseException):
    """The end of a process."""


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class MemoryDisk(Disk):
    """Local files in memory; the root exists."""

    def __init__(self, root: str = "/") -> None:
        self.capacity: int | None = None
        self._names: dict[str, _File | None] = {root: None}  # None for a directory
        self._durable: dict[str, _File | None] = dict(self._names)
        self._changes: list[tuple[str, _File | None, bool]] = []  # not durable: path, file, whether it exists
        self._open: dict[int, _File] = {}
        self._next = 100

    # Operations.

    def make_directory(self, path: str) -> None:
        if path not in self._names:
            self._set(path, None)

    def create(self, path: str) -> int:
        if path in self._names:
            raise FileExistsError(path)
        if os.path.dirname(path) not in self._names:
            raise FileNotFoundError(path)
        file = _File()
        self._set(path, file)
        self._next += 1
        self._open[self._next] = file
        return self._next

    def reserve(self, file: int, start: int, size: int) -> None:
        self._extend(self._open[file], start + size)

    def write(self, file: int, chunks: Chunks, offset: int) -> int:
        content = b"".join(chunks)
        self._extend(self._open[file], offset + len(content))
        self._open[file].content[offset : offset + len(content)] = content
        return offset + len(content)

    def _extend(self, file: _File, size: int) -> None:
        more = size - len(file.content)
        if more > 0:
            if self.capacity is not None and self.used() + more > self.capacity:
                raise OSError(28, "No space left on device")
            file.content += bytes(more)

    def used(self) -> int:
        return sum(len(file.content) for file in self._names.values() if file is not None)

    def drop_cache(self, file: int, start: int, size: int) -> None:
        """There is no cache."""

    def sync(self, file: int) -> None:
        self._open[file].durable = bytes(self._open[file].content)

    def sync_path(self, path: str) -> None:
        self._file(path).durable = bytes(self._file(path).content)

    def truncate(self, file: int, size: int) -> None:
        del self._open[file].content[size:]

    def close(self, file: int) -> None:
        del self._open[file]

    def rename(self, source: str, target: str) -> None:
        file = self._names[source]
        self._set(target, file)
        self._unset(source)

    def sync_directory(self, path: str) -> None:
        kept = []
        for change in self._changes:
            if os.path.dirname(change[0]) == path:
                self._persist(change)
            else:
                kept.append(change)
        self._changes = kept

    def delete(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(path)
        if self._names[path] is None and any(os.path.dirname(name) == path for name in self._names):
            raise OSError(39, "Directory not empty")
        self._unset(path)

    def read(self, path: str, mapped: bool) -> pa.Buffer:
        return pa.py_buffer(bytes(self._file(path).content))

    def size(self, path: str) -> int | None:
        if path not in self._names:
            return None
        file = self._names[path]
        return 0 if file is None else len(file.content)

    def tree(self, path: str) -> tuple[list[str], list[tuple[str, int]]]:
        below = sorted(name for name in self._names if name.startswith(path.rstrip("/") + "/"))
        files = {name: self._names[name] for name in below}
        directories = [name for name in reversed(below) if files[name] is None]
        return directories, [(name, len(file.content)) for name, file in files.items() if file is not None]

    def _file(self, path: str) -> _File:
        file = self._names.get(path)
        if file is None:
            raise FileNotFoundError(path)
        return file

    def _set(self, path: str, file: _File | None) -> None:
        self._names[path] = file
        self._changes.append((path, file, True))

    def _unset(self, path: str) -> None:
        file = self._names.pop(path)
        self._changes.append((path, file, False))

    def _persist(self, change: tuple[str, _File | None, bool]) -> None:
        path, file, exists = change
        if exists:
            self._durable[path] = file
        else:
            self._durable.pop(path, None)

    # Crashes and damage.

    def crash(self, choice: random.Random, keep: str) -> None:
        """Forget: with keep="all" nothing (a process is killed), with "synced" all that is not durable, else some."""
        self._open.clear()
        if keep == "all":
            return
        kept = 0 if keep == "synced" else choice.randint(0, len(self._changes))
        for change in self._changes[:kept]:
            self._persist(change)
        self._changes.clear()
        self._names = dict(self._durable)
        mix: Callable[[_File], bytes] = (lambda file: file.durable) if keep == "synced" else _mixer(choice)
        for file in self._names.values():
            if file is not None:
                file.content = bytearray(mix(file))
                file.durable = bytes(file.content)

    def files(self) -> list[str]:
        return [name for name, file in self._names.items() if file is not None]

    def flip(self, path: str, byte: int, bit: int) -> None:
        self._file(path).content[byte] ^= 1 << bit

    def truncate_path(self, path: str, size: int) -> None:
        del self._file(path).content[size:]


def _mixer(choice: random.Random) -> Callable[[_File], bytes]:
    def mix(file: _File) -> bytes:
        old, new = file.durable, bytes(file.content)
        size = choice.choice([len(old), len(new), choice.randint(min(len(old), len(new)), max(len(old), len(new)))])
        if len(new) < len(old):
            size = choice.choice([len(old), len(new)])
        mixed = bytearray()
        for start in range(0, size, SECTOR):
            chosen = new if choice.random() < 0.5 else old
            if start >= len(new):
                chosen = old
            mixed += chosen[start : start + SECTOR].ljust(SECTOR, b"\0")
        return bytes(mixed[:size])

    return mix
