"""Manifests: which batch files make up the tables of a shard, at which epoch.

A shard publishes a manifest under a new version, as a whole; the newest one counts. A manifest of epoch E has all
effects of committed transactions of epochs up to E: a table that it does not mention is empty at E. The files of a
table may be of a later epoch than E.

A newest manifest that was not written completely is ignored on filesystems where that can happen: nobody has relied on
it, since `publish` had not returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ikebana.storage.batch_files import BatchFile
from ikebana.storage.directory import Directory
from ikebana.storage.files import TORN, read_json, write_json


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The batch files of a table: together they are its rows at an epoch."""

    epoch: int
    files: tuple[BatchFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The tables of a shard at an epoch."""

    version: int
    epoch: int
    tables: Mapping[str, TableFiles]

    @property
    def files(self) -> Iterator[BatchFile]:
        """All batch files."""
        return (file for table in self.tables.values() for file in table.files)

    def epoch_of(self, table: str) -> int:
        """The epoch up to which the changes of a table are in its files."""
        return self.tables[table].epoch if table in self.tables else self.epoch

    def to_json(self) -> dict[str, Any]:
        tables = {
            name: {"epoch": table.epoch, "files": [file.to_json() for file in table.files]}
            for name, table in self.tables.items()
        }
        return {"version": self.version, "epoch": self.epoch, "tables": tables}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Manifest:
        tables = {
            name: TableFiles(table["epoch"], tuple(BatchFile(**file) for file in table["files"]))
            for name, table in fields["tables"].items()
        }
        return Manifest(fields["version"], fields["epoch"], tables)


def manifest_path(shard: str, version: int) -> str:
    return f"{shard}/manifest-{version:08d}.json"


def write_manifest(directory: Directory, shard: str, manifest: Manifest) -> None:
    """Publish a manifest of the shard in a directory."""
    write_json(directory, manifest_path(shard, manifest.version), manifest.to_json())


def manifest_paths(directory: Directory, shard: str) -> list[str]:
    """The manifests of the shard in a directory, the newest first."""
    pattern = re.compile(rf"{re.escape(shard)}/manifest-\d+\.json")
    return [entry.path for entry in reversed(directory.files(shard)) if pattern.fullmatch(entry.path)]


def newest_manifest(directory: Directory, shard: str) -> Manifest | None:
    """The manifest of the shard in a directory; None if it has published none."""
    for path in manifest_paths(directory, shard):
        fields = read_json(directory, path, f"which files {shard} consists of")
        if fields is not TORN:
            return Manifest.from_json(fields)
    return None
