"""Leases that last for a short time, but longer than a busy machine keeps a thread waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ikebana.storage import lease

LEASE_SECONDS, SETTLING_SECONDS = 1.5, 0.01


@contextmanager
def short_leases() -> Iterator[None]:
    """A block in which leases are short, where there are no locks."""
    seconds = patch.object(lease, "LEASE_SECONDS", LEASE_SECONDS)
    with seconds, patch.object(lease, "SETTLING_SECONDS", SETTLING_SECONDS):
        yield
