"""Hypothesis profiles, which tests run in which profile, and on which process the tests on Spark run.

The profile is chosen by IKEBANA_PROFILE: see `tests.profiles`.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.profiles import EXAMPLES, PROFILE

for name, examples in EXAMPLES.items():
    settings.register_profile(name, max_examples=examples, deadline=None, derandomize=False, print_blob=True)
settings.load_profile(PROFILE)

RUNS_IN = {"thorough": ("thorough", "soak"), "soak": ("soak",)}
"""The profiles in which tests with a marker run; tests without one run in all of them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the profile leaves out; put the tests on Spark first, in two groups for two processes."""
    for item in items:
        for marker, profiles in RUNS_IN.items():
            if item.get_closest_marker(marker) and PROFILE not in profiles:
                item.add_marker(pytest.mark.skip(reason=f"runs only with IKEBANA_PROFILE={profiles[0]}"))
        if item.get_closest_marker("spark"):
            group = "spark sql" if "tests/sql/" in item.nodeid else "spark sessions"
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
