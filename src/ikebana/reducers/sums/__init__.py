"""Aggregates based on sums, exact under any number of additions and retractions.

`aggregate` maintains `Count`, `Sum`, `Mean` and `Variance` of groups. `split` and `join` convert numbers to lanes and
back.
"""

from ikebana.reducers.sums.aggregates import Aggregate, Count, Mean, Sum, Variance
from ikebana.reducers.sums.aggregating import Calls, aggregate
from ikebana.reducers.sums.exact import Totals, join, lanes_of, split

__all__ = ["Aggregate", "Calls", "Count", "Mean", "Sum", "Totals", "Variance", "aggregate", "join", "lanes_of", "split"]
