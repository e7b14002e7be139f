"""How many examples property tests try: by the Hypothesis profile, which IKEBANA_PROFILE chooses.

`quick` (the default) is for every change, `thorough` for a night, `soak` for as long as one likes. Examples are random,
so every run tries others: what one run of `quick` misses, the next ones or a soak find.
"""

from __future__ import annotations

import os

from hypothesis import settings

EXAMPLES = {"quick": 25, "thorough": 2_000, "soak": 10_000}
PROFILE = os.environ.get("IKEBANA_PROFILE", "quick")


def examples(factor: float, quick: float | None = None) -> settings:
    """So many times the profile's number of examples; in the quick profile, `quick` times if that is given."""
    chosen = quick if quick is not None and PROFILE == "quick" else factor
    return settings(max_examples=max(1, round(chosen * EXAMPLES[PROFILE])))
