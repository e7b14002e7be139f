"""Times, their lattice, and frontiers: the bottom layer, which everything else is ordered by."""

from ikebana.time.antichain import Antichain
from ikebana.time.lattice import Time, advance, join, less_equal, less_than, meet, minimum

__all__ = ["Antichain", "Time", "advance", "join", "less_equal", "less_than", "meet", "minimum"]
