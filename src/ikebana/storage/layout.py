"""The names of the files in a storage directory, and the file that has its format.

    format.json                              the version of the format
    lock                                     local disks only: locked by the driver and the workers
    claims/000007-5c21.json                  who has started incarnation 7, from which process and when
    heartbeats/000007-5c21.json              other filesystems only: renewed while the owner is alive
    incarnations/000007/base.json            what incarnation 7 has started from
    incarnations/000007/catalog/...          the catalogue's journal
    incarnations/000007/driver/log-000000    the driver's log
    incarnations/000007/shard-0003/log-000000
    incarnations/000007/shard-0003/manifest-00000012.json
    incarnations/000007/shard-0003/batches/00000042.batch

An *incarnation* is the life of one set of workers: a new one starts with every session, and when a session replaces its
workers. It exists once its base does; a directory without one is what a crash has left behind.
"""

from __future__ import annotations

import re
import time
import uuid
from typing import Any

from ikebana.errors import StorageError
from ikebana.storage.directory import TEMPORARY, Directory
from ikebana.storage.files import TORN, read_json, write_json
from ikebana.storage.transactions import DRIVER

FORMAT = 2
"""The version of the format that this version of ikebana writes, and the newest that it reads."""

FORMAT_FILE, LOCK_FILE = "format.json", "lock"
CLAIMS, HEARTBEATS, INCARNATIONS = "claims", "heartbeats", "incarnations"


def incarnation_path(incarnation: int) -> str:
    return f"{INCARNATIONS}/{incarnation:06d}"


def base_path(incarnation: int) -> str:
    return f"{incarnation_path(incarnation)}/base.json"


def catalog_path(incarnation: int) -> str:
    return f"{incarnation_path(incarnation)}/catalog"


def shard_path(incarnation: int, shard: int) -> str:
    """The directory of a shard, or of the driver."""
    name = "driver" if shard == DRIVER else f"shard-{shard:04d}"
    return f"{incarnation_path(incarnation)}/{name}"


def log_path(incarnation: int, shard: int) -> str:
    """The path of the segments of a log, without their numbers."""
    return f"{shard_path(incarnation, shard)}/log-"


def batch_path(incarnation: int, shard: int, number: int) -> str:
    return f"{shard_path(incarnation, shard)}/batches/{number:08d}.batch"


def incarnation_of(path: str) -> int | None:
    """The incarnation that a file belongs to."""
    match = re.match(rf"{INCARNATIONS}/(\d+)/", path)
    return int(match[1]) if match else None


def find_incarnations(directory: Directory) -> list[int]:
    """The incarnations that have a base, in order."""
    bases = (re.fullmatch(rf"{INCARNATIONS}/(\d+)/base\.json", entry.path) for entry in directory.files(INCARNATIONS))
    return sorted(int(match[1]) for match in bases if match)


def create_format(directory: Directory) -> None:
    """Write the format of a new storage directory, or check that of an existing one, and note that it is newer now.

    What only format 2 has is never written to a directory without appending: such a directory stays what it is.
    """
    content: Any = TORN if directory.size(FORMAT_FILE) is None else read_format(directory)
    if content is not TORN:
        if content["format"] < FORMAT and directory.can_append:
            write_json(directory, FORMAT_FILE, {**content, "format": FORMAT})
        return
    others = [entry.path for entry in directory.files() if not _is_left_by_creation(entry.path)]
    if others:
        raise StorageError(
            f"{directory.uri} is not a storage directory of ikebana",
            detail=f"it has no file {FORMAT_FILE}, but others, such as {others[0]}",
            hint="give an empty directory, or one that does not exist",
        )
    created = {"format": FORMAT, "storage": uuid.uuid4().hex, "created_us": time.time_ns() // 1000}
    write_json(directory, FORMAT_FILE, created)


def _is_left_by_creation(path: str) -> bool:
    return path in (LOCK_FILE, FORMAT_FILE) or (path.startswith(FORMAT_FILE) and path.endswith(TEMPORARY))


def read_format(directory: Directory) -> object:
    """Check that this version of ikebana can read a storage directory; return the contents of its format file."""
    if directory.size(FORMAT_FILE) is None:
        raise StorageError(
            f"there is no storage directory at {directory.uri}",
            detail=f"it has no file {FORMAT_FILE}",
            hint="check the path",
        )
    content = read_json(directory, FORMAT_FILE, "the version of the format")
    if content is TORN:
        return content
    if content["format"] > FORMAT:
        raise StorageError(
            f"the storage directory {directory.uri} has format {content['format']}",
            detail=f"this version of ikebana reads formats up to {FORMAT}",
            hint="use the version of ikebana that wrote it, or a later one",
        )
    return content
