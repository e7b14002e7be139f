"""The driver's side of a storage directory: the lease, incarnations, the catalogue and decisions.

Opening a storage directory, step by step: take the lease; claim a new incarnation, which fences off all processes of
earlier ones; decide what it starts from (`ikebana.storage.recovery`); copy the catalogue; write the base. The
incarnation exists once its base is durable. A crash before that leaves files that nothing mentions, and the next
opening decides again.

`restart` does the same with the lease that is held already, when the workers have to be replaced.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ikebana.errors import IkebanaError
from ikebana.storage.catalog import StorageCatalog, read_catalog
from ikebana.storage.directory import Directory
from ikebana.storage.files import write_json
from ikebana.storage.filesystems import open_directory
from ikebana.storage.garbage import no_garbage
from ikebana.storage.layout import (
    CLAIMS,
    HEARTBEATS,
    INCARNATIONS,
    base_path,
    catalog_path,
    create_format,
    incarnation_of,
    log_path,
)
from ikebana.storage.lease import Fence, Lease
from ikebana.storage.log import Collected, Guards, Log
from ikebana.storage.recovery import Base, Recovery, newest_base, next_base, read_manifests
from ikebana.storage.transactions import DRIVER, TransactionLog

_NUMBER_BITS = 40
"""Transactions are numbered from the incarnation, shifted by this, upwards."""

WAIT_SECONDS = 30.0


class Store:
    """A storage directory that this driver uses."""

    def __init__(self, place: Any, *, shards: int, owner: str = "", wait: float = WAIT_SECONDS) -> None:
        """Open a storage directory for a number of workers; it is created if it does not exist.

        `owner` is shown to others who want to use it. `wait` is how many seconds to wait for the workers of an earlier
        session to end.
        """
        self._directory: Directory = open_directory(place)
        self._wait = wait
        self._lease = Lease(self._directory, owner)
        self._is_closed = False
        try:
            create_format(self._directory)
            self._start(shards)
        except BaseException:
            self._lease.release()
            raise

    @staticmethod
    def open(place: Any, *, shards: int, owner: str = "", wait: float = WAIT_SECONDS) -> Store:
        """Open a storage directory: the same as calling the class."""
        return Store(place, shards=shards, owner=owner, wait=wait)

    def _start(self, shards: int) -> None:
        directory = self._directory
        incarnation = self._lease.start(self._wait)
        self._fence = Fence(directory, incarnation)
        guards = Guards(self._fence.check, self._lease.check, self._fence.check_now)
        with no_garbage():
            base, dropped, records = next_base(directory, incarnation, shards)
        last = newest_base(directory)
        entries = {} if last is None else read_catalog(directory, catalog_path(last.incarnation))
        self.catalog = StorageCatalog(directory, catalog_path(incarnation), incarnation, entries, guards)
        write_json(directory, base_path(incarnation), base.to_json())
        self._base: Base = base
        self._numbers: Iterator[int] = itertools.count((incarnation << _NUMBER_BITS) + 1)
        self.recovery = Recovery(directory, base, dropped, records)
        log = Log(directory, log_path(incarnation, DRIVER), incarnation, DRIVER, guards)
        log.prepare()  # an abort must be possible on a full disk
        self.log = TransactionLog(log, base.epoch)

    @property
    def place(self) -> str:
        """The path or URI, for workers."""
        return self._directory.place

    @property
    def incarnation(self) -> int:
        """The number of the incarnation, for workers."""
        return self._base.incarnation

    @property
    def shards(self) -> int:
        """The number of shards of the incarnation."""
        return self._base.shards

    def new_transaction(self) -> int:
        """A number that no other transaction has or will have; greater than all before."""
        return next(self._numbers)

    def abort(self, number: int, epoch: int) -> None:
        """Decide that a transaction has not happened, whatever its participants have written; durable on return."""
        self.abort_all([(number, epoch)])

    def abort_all(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Like `abort`, for the numbers and epochs of several transactions, with one sync."""
        for number, epoch in transactions:
            self.log.append_abort(number, epoch)
        self.log.sync()

    def check_lease(self) -> None:
        """Raise if another session may have taken over. Call this before a commit is acknowledged."""
        self._lease.check()

    def restart(self, shards: int) -> Recovery:
        """Start a new incarnation, with new workers, from what is stored; return what to load.

        The old workers must end: on local disks this waits for them. The logs and the catalogue are new objects.
        """
        with suppress(IkebanaError):  # they may be broken
            self._close_files()
        self._start(shards)
        return self.recovery

    def covered_epoch(self) -> int:
        """The epoch that the manifests of all shards cover; -1 if a shard has published none."""
        manifests = read_manifests(self._directory, self._base)
        if len(manifests) < self._base.shards:
            return -1
        return min(manifest.epoch for manifest in manifests.values())

    def collect(self) -> Collected:
        """Delete what is not needed any more of earlier incarnations."""
        self._lease.check()
        manifests = read_manifests(self._directory, self._base)
        is_complete = len(manifests) == self._base.shards
        needed = {file.path for manifest in manifests.values() for file in manifest.files}
        if is_complete:
            self.recovery.release()
        else:
            needed |= self._base.paths
        self._fence.check_now()  # after the manifests were read: a later incarnation has these, or later ones
        directory = self._directory
        entries = [
            entry
            for entry in directory.files(INCARNATIONS)
            if entry.path not in needed and self._is_earlier(incarnation_of(entry.path))
        ]
        directory.delete_all(entry.path for entry in entries)
        claims = (*directory.files(CLAIMS), *directory.files(HEARTBEATS))
        directory.delete_all(entry.path for entry in claims if entry.path.split("/")[1] < f"{self.incarnation:06d}")
        for name in directory.folders(INCARNATIONS):
            path = f"{INCARNATIONS}/{name}/"
            if self._is_earlier(incarnation_of(path)):
                directory.delete_empty_directories(path.rstrip("/"))
        return Collected(len(entries), sum(entry.size for entry in entries))

    def _is_earlier(self, incarnation: int | None) -> bool:
        return incarnation is not None and incarnation < self.incarnation

    def _close_files(self) -> None:
        try:
            self.log.close()
        finally:
            self.catalog.close()

    def close(self) -> None:
        """Close the logs and release the lease."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._close_files()
            finally:
                self._lease.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
