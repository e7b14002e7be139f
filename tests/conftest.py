"""Hypothesis profiles, chosen by IKEBANA_PROFILE: see `tests.profiles`."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.profiles import EXAMPLES, PROFILE

for name, examples in EXAMPLES.items():
    settings.register_profile(name, max_examples=examples, deadline=None, derandomize=False, print_blob=True)
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests marked `soak` to `make soak`."""
    if PROFILE != "soak":
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="runs only in `make soak`"))
