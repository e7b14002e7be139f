"""Where the tests store.

That is a disk, or rather memory if the system has such a filesystem, since a killed process loses nothing there. Tests
marked with `everywhere` run on an object store too, and those marked with `anywhere` do so in the profile `thorough`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from unittest.mock import patch

import pytest

from ikebana.storage import early_rows, open_directory
from ikebana.storage.files import write_json
from ikebana.storage.layout import HEARTBEATS
from tests.storage.s3_server import S3Server
from tests.storage.short_leases import short_leases

FEW_BYTES = 64
"""Rows of so many bytes are written early."""

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(autouse=True)
def few_rows_are_many() -> Iterator[None]:
    """A few rows are written before their transaction already."""
    with patch.object(early_rows, "EARLY_BYTES", FEW_BYTES):
        yield


_DISK, S3 = "disk", "s3"
everywhere = pytest.mark.parametrize("place", [_DISK, S3], indirect=True)
anywhere = pytest.mark.parametrize("place", [_DISK, pytest.param(S3, marks=pytest.mark.thorough)], indirect=True)


@dataclass(frozen=True)
class S3Place:
    """A storage directory on an object store."""

    server: S3Server
    path: str

    def __str__(self) -> str:
        return self.server.uri(self.path)

    def copied(self) -> S3Place:
        """A copy of what there is at this moment, whose lease is released, so that nobody waits for its end."""
        copy = S3Place(self.server, f"{self.path}+")
        source, target = open_directory(str(self)), open_directory(str(copy))
        target.delete_all([entry.path for entry in target.files()])
        for entry in source.files():
            if entry.path.startswith(HEARTBEATS):
                write_json(target, entry.path, "released")
            else:
                target.write(entry.path, [source.read(entry.path)])
        return copy


Place: TypeAlias = Path | S3Place


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A storage directory that does not exist yet."""
    if getattr(request, "param", _DISK) == S3:
        with short_leases():
            yield S3Place(request.getfixturevalue("s3"), f"{secrets.token_hex(4)}/a shop")
    else:
        with TemporaryDirectory(dir=IN_MEMORY) as folder:
            yield Path(folder) / "store"
