"""`sort-floor`: how fast this machine sorts random 64-bit keys with `numpy.sort`.

Arranging updates includes sorting them, so the time to sort is the reference for the time to arrange. Not measured:
faster sorting code (see `measure.fastest_sort`), and any part of Ikebana. The paper has no such experiment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikebana_bench.measure import Stopwatch, ccdf, percentiles, random_keys
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter


@dataclass(frozen=True)
class SortFloorParameters(Parameters):
    rows: int = parameter(1_000_000, "random 64-bit keys to sort", minimum=1)
    repeats: int = parameter(20, "number of times the keys are sorted", minimum=1)
    seed: int = parameter(0, "seed of the random keys", minimum=0)


class SortFloor(Scenario[SortFloorParameters]):
    name = "sort-floor"
    claim = "Sorting random 64-bit keys with numpy.sort is the physical lower bound for arranging them."
    paper = "none: a lower bound for figure 6"
    parameters = SortFloorParameters

    def run(self, parameters: SortFloorParameters, progress: Progress) -> Results:
        keys = random_keys(parameters.rows, parameters.seed)
        milliseconds = []
        for _ in progress.track("sorting", range(parameters.repeats)):
            watch = Stopwatch()
            ordered = np.sort(keys)
            milliseconds.append(watch.seconds * 1e3)
        self.verify(ordered.tolist() == sorted(keys.tolist()), "numpy.sort and Python's sorted agree")
        return {
            "keys_per_s": parameters.rows / (min(milliseconds) / 1e3),
            **percentiles("sort", "ms", milliseconds),
            "sort_ms": ccdf(milliseconds),
        }
