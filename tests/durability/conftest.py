"""Where the tests store: in memory if the system has such a filesystem, since a killed process loses nothing there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from ikebana.storage import early_rows

FEW_BYTES = 64
"""Rows of so many bytes are written early."""

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(autouse=True)
def few_rows_are_many() -> Iterator[None]:
    """A few rows are written before their transaction already."""
    with patch.object(early_rows, "EARLY_BYTES", FEW_BYTES):
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """A storage directory that does not exist yet."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder) / "store"
