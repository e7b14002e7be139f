"""Aggregates based on sums, exact under any number of additions and retractions.

`aggregate` maintains `Count`, `Sum`, `Mean`, `Variance`, `Moment` and `Bivariate` of groups. `split` and `join` convert
numbers to lanes and back.
"""

from ikebana.reducers.sums.aggregates import Aggregate, Count, Mean, Sum, Variance
from ikebana.reducers.sums.aggregating import Calls, aggregate
from ikebana.reducers.sums.exact import Totals, join, lanes_of, split
from ikebana.reducers.sums.moments import Bivariate, Moment

__all__ = [
    "Aggregate",
    "Bivariate",
    "Calls",
    "Count",
    "Mean",
    "Moment",
    "Sum",
    "Totals",
    "Variance",
    "aggregate",
    "join",
    "lanes_of",
    "split",
]
