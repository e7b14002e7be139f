"""The catalogue: named entries of a few kinds (tables, views, positions of streams ...), kept by the driver.

Every change is a record in a journal. A journal begins with a record of all entries; replaying it gives the catalogue.
When the changes have become much longer than the entries, the catalogue is written to a new journal, and the old one is
deleted. A new journal counts once its first record is complete.

Values are plain JSON, never pickled; what must be pickled is signed first (`ikebana.storage.signing`).

Cost: a change is an append and a sync, whatever the size of the catalogue.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.storage.directory import Directory
from ikebana.storage.log import NO_GUARDS, Guards, Log, find_segments, scan_log
from ikebana.storage.records import Kind, Record

_COMPACTED_FROM = 1 << 20
"""A journal is compacted when it has this many bytes, and four times those of the entries."""

_NO_SEGMENT_BYTES = 1 << 62
_SHARD = -2
"""The number of a shard in the headers of journals."""

Entries: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PutEntry:
    """Create or replace an entry."""

    kind: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """Delete an entry; it may not exist."""

    kind: str
    name: str


class StorageCatalog:
    """The catalogue of a storage directory, for any number of threads of the driver."""

    def __init__(
        self,
        directory: Directory,
        path: str,
        incarnation: int,
        entries: Entries,
        guards: Guards = NO_GUARDS,
    ) -> None:
        """Start a journal with some entries; it is durable on return. The guards are those of its log."""
        self._directory, self._path, self._incarnation, self._guards = directory, path, incarnation, guards
        self._lock = threading.Lock()
        self._entries = {kind: dict(named) for kind, named in entries.items()}
        self._generation = 0
        self._log, self._first_bytes = self._new_journal()

    def entries(self, kind: str) -> dict[str, Any]:
        """The entries of a kind by name, in the order in which they were first put."""
        with self._lock:
            return dict(self._entries.get(kind, {}))

    def kinds(self) -> list[str]:
        """The kinds that have entries."""
        with self._lock:
            return [kind for kind, named in self._entries.items() if named]

    def get(self, kind: str, name: str, default: Any = None) -> Any:
        """The value of an entry."""
        with self._lock:
            return self._entries.get(kind, {}).get(name, default)

    def put(self, kind: str, name: str, value: Any) -> None:
        """Create or replace an entry; durable on return."""
        self.update([PutEntry(kind, name, value)])

    def delete(self, kind: str, name: str) -> None:
        """Delete an entry; durable on return."""
        self.update([DeleteEntry(kind, name)])

    def update(self, changes: Iterable[PutEntry | DeleteEntry]) -> None:
        """Make several changes at once: after a crash, either all are present or none. Durable on return."""
        encoded = [_encoded(change) for change in changes]
        record = _record({"changes": encoded})
        with self._lock:
            self._guards.before_sync()
            self._log.sync(self._log.append(record))
            _apply(self._entries, json.loads(json.dumps(encoded)))  # callers may change their values later
            if self._log.bytes > max(_COMPACTED_FROM, 4 * self._first_bytes):
                self._compact()

    def compact(self) -> None:
        """Write all entries to a new journal, and delete the old one."""
        with self._lock:
            self._compact()

    def _compact(self) -> None:
        old, generation = self._log, self._generation
        self._generation += 1
        self._log, self._first_bytes = self._new_journal()
        old.close()
        self._guards.before_deletion()  # after the new journal was written, which any later incarnation reads
        segments = find_segments(self._directory, _journal(self._path, generation))
        self._directory.delete_all(entry.path for entry in segments)

    def _new_journal(self) -> tuple[Log, int]:
        path = _journal(self._path, self._generation)
        log = Log(
            self._directory,
            path,
            self._incarnation,
            _SHARD,
            self._guards,
            segment_bytes=_NO_SEGMENT_BYTES,
        )
        log.sync(log.append(_record({"entries": self._entries})))
        return log, log.bytes

    def close(self) -> None:
        """Close the journal."""
        self._log.close()


def read_catalog(directory: Directory, path: str) -> Entries:
    """The entries of the catalogue in a directory; none if it has no journal."""
    for generation in sorted(_generations(directory, path), reverse=True):
        _, stored = scan_log(directory, _journal(path, generation), -1)
        records = [json.loads(bytes(item.body)) for item in stored]
        if records:
            entries: Entries = records[0]["entries"]
            for record in records[1:]:
                _apply(entries, record["changes"])
            return entries
    return {}


def _generations(directory: Directory, path: str) -> set[int]:
    matches = (re.fullmatch(rf"{re.escape(path)}/journal-(\d+)-\d+", entry.path) for entry in directory.files(path))
    return {int(match[1]) for match in matches if match}


def _journal(path: str, generation: int) -> str:
    return f"{path}/journal-{generation:06d}-"


def _record(value: Any) -> Record:
    return Record(Kind.CATALOG, [json.dumps(value, separators=(",", ":")).encode()])


def _encoded(change: PutEntry | DeleteEntry) -> list[Any]:
    if isinstance(change, PutEntry):
        return ["put", change.kind, change.name, change.value]
    return ["delete", change.kind, change.name]


def _apply(entries: Entries, changes: list[list[Any]]) -> None:
    for action, kind, name, *value in changes:
        if action == "put":
            entries.setdefault(kind, {})[name] = value[0]
        else:
            entries.get(kind, {}).pop(name, None)
