"""Where the tests store: in memory if the system has such a filesystem, since a killed process loses nothing there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def place() -> Iterator[Path]:
    """A storage directory that does not exist yet."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder) / "store"
