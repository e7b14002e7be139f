"""A worker's side of a storage directory: its log, its batch files and its manifests.

Invariants: a manifest is written only after all batch files that it mentions; a batch file is deleted only after a
manifest that does not mention it; a segment of the log only after the manifests of all shards cover it. Between that
manifest and the deletion, nobody else has claimed the directory, so no later incarnation needs what is deleted, however
late that happens.

Batches are written while others commit transactions. If some were logged while a piece of a batch file was written, the
next piece waits for as long as that took, so that no more than half of the disk's time goes into batch files.

Threads: the log may be used by any number of threads, and `write_batch` too. `publish`, `collect` and `trim` are called
by one thread at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ikebana.errors import FencedError, StorageError
from ikebana.storage.batch_files import BatchFile, write_batch
from ikebana.storage.directory import Directory
from ikebana.storage.filesystems import open_directory
from ikebana.storage.layout import base_path, batch_path, log_path, read_format, shard_path
from ikebana.storage.lease import Fence, lock_file
from ikebana.storage.log import Collected, Guards, Log
from ikebana.storage.manifests import Manifest, TableFiles, manifest_path, manifest_paths, write_manifest
from ikebana.storage.recovery import Base, Recovery, read_base
from ikebana.storage.transactions import TransactionLog
from ikebana.trace.batch import StoredBatch

_LONGEST_PAUSE = 0.1
"""The seconds for which a batch file waits at most, after each piece."""


class _PaceOf:
    """Lets files that are written beside a log wait while the log is used."""

    def __init__(self, log: TransactionLog) -> None:
        self._log, self._bytes = log, log.bytes

    def __call__(self, seconds: float) -> None:
        """Wait as long as a piece has taken, if the log has grown meanwhile."""
        before, self._bytes = self._bytes, self._log.bytes
        if self._bytes != before:
            time.sleep(min(seconds, _LONGEST_PAUSE))


class Shard:
    """One shard of an incarnation."""

    def __init__(self, place: Any, incarnation: int, index: int) -> None:
        """Open a shard that the driver has started; each shard is opened once."""
        self._directory: Directory = open_directory(place)
        read_format(self._directory)
        self._incarnation, self.index = incarnation, index
        self._path = shard_path(incarnation, index)
        self._lock_file = lock_file(self._directory)
        self._fence = Fence(self._directory, incarnation)
        self.manifest: Manifest | None = None
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._being_written: set[str] = set()
        try:
            if self._lock_file is not None and not self._lock_file.lock_worker():
                raise FencedError(f"another session is about to take over the storage directory {self._directory.uri}")
            self._fence.check()
            self.recovery = Recovery(self._directory, self._read_base())
            self.log = self._new_log()
        except BaseException:
            self._close_lock()
            raise

    def _read_base(self) -> Base:
        base = read_base(self._directory, self._incarnation)
        if base is None:
            raise StorageError(
                f"the storage directory {self._directory.uri} has no incarnation {self._incarnation}",
                detail=f"{base_path(self._incarnation)} was not written completely",
            )
        return base

    def _new_log(self) -> TransactionLog:
        if self._directory.files(self._path):
            raise StorageError(
                f"shard {self.index} of the storage directory {self._directory.uri} was opened before",
                detail=f"{self._path} has files",
                hint="start a new incarnation: workers are always replaced together",
            )
        path = log_path(self._incarnation, self.index)
        guards = Guards(before_sync=self._fence.check, before_deletion=self._fence.check_now)
        log = Log(self._directory, path, self._incarnation, self.index, guards)
        log.prepare()
        return TransactionLog(log, self.recovery.epoch)

    @staticmethod
    def open(place: Any, incarnation: int, index: int) -> Shard:
        """Open a shard: the same as calling the class."""
        return Shard(place, incarnation, index)

    def write_batch(self, batch: StoredBatch) -> BatchFile:
        """Write a batch to a file, which is durable on return."""
        with self._lock:
            path = batch_path(self._incarnation, self.index, next(self._numbers))
            self._being_written.add(path)
        try:
            return write_batch(self._directory, path, batch, _PaceOf(self.log))
        finally:
            with self._lock:
                self._being_written.discard(path)

    def publish(self, epoch: int, tables: Mapping[str, TableFiles]) -> Manifest:
        """Publish a manifest; it counts once this has returned.

        All effects of committed transactions of epochs up to `epoch` are in the files; tables that are not mentioned
        are empty.
        """
        last = self.recovery.epoch if self.manifest is None else self.manifest.epoch
        behind = [name for name, table in tables.items() if table.epoch < epoch]
        if epoch < last or behind:
            raise StorageError(
                f"cannot publish a manifest of epoch {epoch} for shard {self.index}",
                detail=f"table {behind[0]!r} is behind it" if behind else f"the last one was of epoch {last}",
            )
        self._fence.check()
        version = 1 if self.manifest is None else self.manifest.version + 1
        manifest = Manifest(version, epoch, dict(tables))
        write_manifest(self._directory, self._path, manifest)
        self.manifest = manifest
        self.recovery.release()  # what was to be recovered is in the manifest
        return manifest

    def collect(self, keep: Iterable[BatchFile] = ()) -> Collected:
        """Delete old manifests, and the batch files of this shard that its manifest does not mention.

        `keep` has files that are written, and will be mentioned later.
        """
        if self.manifest is None:
            return Collected()
        self._fence.check_now()  # after the manifest was published: a later incarnation has read it, or a later one
        with self._lock:
            needed = {file.path for file in (*self.manifest.files, *keep)} | self._being_written
        newest = manifest_path(self._path, self.manifest.version)
        old = [path for path in manifest_paths(self._directory, self._path) if path != newest]
        batches = self._directory.files(f"{self._path}/batches")
        sizes = {entry.path: entry.size for entry in batches if not self._is_needed(entry.path, needed)}
        self._directory.delete_all([*old, *sizes])
        return Collected(len(old) + len(sizes), sum(sizes.values()))

    def _is_needed(self, path: str, needed: set[str]) -> bool:
        """Whether a file is mentioned, or a temporary name of one that is being written."""
        return path in needed or any(path.startswith(name) for name in self._being_written)

    def trim(self, covered: int) -> Collected:
        """Delete the segments of the log whose transactions are all of epochs up to `covered`.

        `covered` must be an epoch that the manifests of all shards cover: see `Store.covered_epoch`.
        """
        own = -1 if self.manifest is None else self.manifest.epoch
        return self.log.trim(min(covered, own))

    def close(self) -> None:
        """Close the log, and let the storage directory be used by others."""
        try:
            self.log.close()
        finally:
            self._close_lock()

    def _close_lock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
