"""Inspection of storage directories: whether every stored byte is as it was written, and what there is.

Both read a storage directory without opening it, so they may run while a session uses it. Files that the session
deletes meanwhile are left out: a file that is gone is no damage by itself, and what needs several files is read again
if one of them is missing, since what named it may be gone as well. `check` reads every file.

Not guaranteed: that `check` finds a file that was deleted, if it was the last segment of a log or the newest manifest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ikebana.errors import CorruptionError
from ikebana.storage.batch_files import BatchFile, verify_batch_file
from ikebana.storage.catalog import read_catalog
from ikebana.storage.directory import TEMPORARY, Directory, FileEntry
from ikebana.storage.files import read_json
from ikebana.storage.filesystems import open_directory
from ikebana.storage.layout import (
    LOCK_FILE,
    catalog_path,
    find_incarnations,
    incarnation_of,
    log_path,
    read_format,
)
from ikebana.storage.lease import Claim, is_in_use, read_claims
from ikebana.storage.log import scan_log
from ikebana.storage.manifests import Manifest
from ikebana.storage.records import Kind, LogFile
from ikebana.storage.recovery import Base, check_rows, newest_base, read_base, read_manifests
from ikebana.storage.transactions import DRIVER, note_of

T = TypeVar("T")

_ATTEMPTS = 10
"""How often files are read again that a session deletes meanwhile."""

_LOG_FILE = re.compile(r".*/(log-\d{6}|journal-\d{6}-\d{6})")


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written."""

    path: str
    problem: str
    lost: str


def check(place: Any, on_file: Callable[[FileEntry], None] = lambda entry: None) -> list[Damage]:
    """Read every file of a storage directory; return what is damaged. `on_file` is called before each file."""
    directory = open_directory(place)
    damages: list[Damage] = []
    with _Catching(damages):
        read_format(directory)
    mentioned: dict[str, tuple[str, BatchFile]] = {}
    with _Catching(damages):
        mentioned = _lasting(_mentioned, directory)
    for entry in directory.files():
        on_file(entry)
        found: list[Damage] = []
        with _Catching(found):
            _check_file(directory, entry, mentioned)
        if found and directory.size(entry.path) is not None:
            damages += found
    for check_whole in (_check_logs, _check_catalog, _check_mentioned):
        with _Catching(damages):
            _lasting(check_whole, directory)
    return list({(damage.path, damage.lost): damage for damage in damages}.values())


def _lasting(read: Callable[[Directory], T], directory: Directory) -> T:
    """What a function returns, or the damage that it finds twice in a row.

    A session may delete a file after this function has read that it is needed; the next time, it is not.
    """
    problem = None
    for _ in range(_ATTEMPTS):
        try:
            return read(directory)
        except (CorruptionError, FileNotFoundError) as error:
            if str(error) == problem:
                raise
            problem = str(error)
    return read(directory)


class _Catching:
    """Turns an error about damage into a `Damage`, and ignores that a file is gone."""

    def __init__(self, damages: list[Damage]) -> None:
        self._damages = damages

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if isinstance(error, CorruptionError):
            problem, _, lost = error.detail.partition("; lost: ")
            self._damages.append(Damage(error.path, problem, lost))
        return isinstance(error, CorruptionError | FileNotFoundError)


def _check_file(directory: Directory, entry: FileEntry, mentioned: dict[str, tuple[str, BatchFile]]) -> None:
    """Check a file by itself."""
    path = entry.path
    if path.endswith(TEMPORARY) or path == LOCK_FILE:
        return
    if path.endswith(".batch"):
        table, file = mentioned.get(path, ("", None))
        verify_batch_file(directory, path, file, table)
    elif path.endswith(".json"):
        read_json(directory, path, "its contents")
    elif _LOG_FILE.fullmatch(path):
        for _ in LogFile(directory, path).records():
            pass
    else:
        raise directory.damaged(path, "it is not a file of ikebana", "nothing, or a file of another name")


def _mentioned(directory: Directory) -> dict[str, tuple[str, BatchFile]]:
    """The batch files that bases and manifests mention, each with its table."""
    manifests: list[Manifest] = []
    for incarnation in find_incarnations(directory):
        base = read_base(directory, incarnation)
        if base is not None:
            manifests += (m for source in base.sources for m in (source.manifests or {}).values())
            manifests += read_manifests(directory, base).values()
    files = ((name, file) for m in manifests for name, table in m.tables.items() for file in table.files)
    return {file.path: (name, file) for name, file in files}


def _check_logs(directory: Directory) -> None:
    """Check that no segment of a log is missing that is needed."""
    base = newest_base(directory)
    if base is None:
        return
    manifests = read_manifests(directory, base)
    is_complete = len(manifests) == base.shards
    covered = min(manifest.epoch for manifest in manifests.values()) if is_complete else base.epoch
    for shard in (DRIVER, *range(base.shards)):
        path = log_path(base.incarnation, shard)
        check_rows(directory, path, scan_log(directory, path, covered)[1], covered)


def _check_catalog(directory: Directory) -> None:
    base = newest_base(directory)
    if base is not None:
        read_catalog(directory, catalog_path(base.incarnation))


def _check_mentioned(directory: Directory) -> None:
    """Check that all files are there that the newest incarnation needs."""
    base = newest_base(directory)
    if base is None:
        return
    for path in sorted(_needed(directory, base)):
        if directory.size(path) is None and path in _needed(directory, base):
            raise directory.damaged(path, "it is missing", "what it contained")


def _needed(directory: Directory, base: Base) -> set[str]:
    """The files of other incarnations, and the batch files, that an incarnation needs."""
    manifests = read_manifests(directory, base)
    batches = {file.path for manifest in manifests.values() for file in manifest.files}
    return batches if len(manifests) == base.shards else batches | base.paths


# What there is.


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The stored batches of a table."""

    table: str
    epoch: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class IncarnationDescription:
    """The files of an incarnation."""

    number: int
    started_us: int
    shards: int
    epoch: int
    is_complete: bool
    files: int
    log_bytes: int
    batch_bytes: int
    other_bytes: int


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A named subscription: the view that it follows, and what was acknowledged; later acknowledgements may exist."""

    name: str
    view: str
    epoch: int | None
    seconds: float
    bytes: int
    failure: str | None


@dataclass(frozen=True, slots=True)
class StorageDescription:
    """What there is in a storage directory."""

    uri: str
    format: int
    created_us: int
    is_in_use: bool | None
    claim: Claim | None
    incarnations: tuple[IncarnationDescription, ...]
    tables: tuple[TableDescription, ...]
    catalog: dict[str, list[str]]
    subscriptions: tuple[SubscriptionDescription, ...]
    bytes: int


def describe(place: Any) -> StorageDescription:
    """What there is in a storage directory."""
    return _lasting(_describe, open_directory(place))


def _describe(directory: Directory) -> StorageDescription:
    root: Any = read_format(directory)
    claims, base, files = read_claims(directory), newest_base(directory), directory.files()
    return StorageDescription(
        directory.uri,
        root["format"],
        root["created_us"],
        is_in_use(directory),
        claims[-1] if claims else None,
        tuple(_incarnations(directory, files)),
        () if base is None else tuple(_tables(directory, base)),
        {} if base is None else _catalog(directory, base),
        () if base is None else tuple(_subscriptions(directory, base)),
        sum(entry.size for entry in files),
    )


def _incarnations(directory: Directory, files: list[FileEntry]) -> Iterator[IncarnationDescription]:
    for number in find_incarnations(directory):
        base = read_base(directory, number)
        if base is None:
            continue
        own = [entry for entry in files if incarnation_of(entry.path) == number]
        logs = sum(entry.size for entry in own if _LOG_FILE.fullmatch(entry.path))
        batches = sum(entry.size for entry in own if entry.path.endswith(".batch"))
        others = sum(entry.size for entry in own) - logs - batches
        manifests = read_manifests(directory, base)
        epoch = max((base.epoch, *(manifest.epoch for manifest in manifests.values())))
        yield IncarnationDescription(
            number, base.started_us, base.shards, epoch, len(manifests) == base.shards, len(own), logs, batches, others
        )


def _tables(directory: Directory, base: Base) -> Iterator[TableDescription]:
    """The tables in the manifests of an incarnation, or of what it has started from."""
    manifests = list(read_manifests(directory, base).values())
    if len(manifests) < base.shards:
        manifests = [manifest for source in base.sources for manifest in (source.manifests or {}).values()]
    for name in sorted({name for manifest in manifests for name in manifest.tables}):
        parts = [manifest.tables[name] for manifest in manifests if name in manifest.tables]
        files = [file for part in parts for file in part.files]
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        yield TableDescription(name, min(part.epoch for part in parts), len(files), rows, size)


def _catalog(directory: Directory, base: Base) -> dict[str, list[str]]:
    entries = read_catalog(directory, catalog_path(base.incarnation))
    return {kind: list(named) for kind, named in entries.items() if named}


def _subscriptions(directory: Directory, base: Base) -> Iterator[SubscriptionDescription]:
    """The named subscriptions, with the positions in the catalogue and in the driver's log."""
    entries = read_catalog(directory, catalog_path(base.incarnation))
    positions = dict(entries.get("position", {}))
    manifests = read_manifests(directory, base).values()
    covered = min((m.epoch for m in manifests), default=base.epoch) if len(manifests) == base.shards else base.epoch
    for stored in scan_log(directory, log_path(base.incarnation, DRIVER), covered)[1]:
        note = note_of(stored) if stored.record.kind is Kind.TRANSACTION else None
        if note is not None:
            positions[note["position"][0]] = note["position"][1]
    for name, entry in entries.get("subscription", {}).items():
        value = positions.get(entry["position"])
        epoch = None if value is None or value["new"] else value["epoch"]
        yield SubscriptionDescription(name, entry["view"], epoch, entry["seconds"], entry["bytes"], entry["failure"])


def shown_time(time_us: int) -> str:
    """A time for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_us / 1e6))
