"""Hypothesis profiles, chosen by IKEBANA_PROFILE: quick (the default), thorough, soak."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

for name, examples in {"quick": 100, "thorough": 2_000, "soak": 10_000}.items():
    settings.register_profile(name, max_examples=examples, deadline=None, derandomize=False, print_blob=True)

PROFILE = os.environ.get("IKEBANA_PROFILE", "quick")
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests marked `soak` to `make soak`."""
    if PROFILE != "soak":
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="runs only in `make soak`"))
