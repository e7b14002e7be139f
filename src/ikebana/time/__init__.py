"""Times, their lattice, and frontiers: the order of everything else."""

from ikebana.time.antichain import Antichain
from ikebana.time.lattice import Time, advance, join, less_equal, meet, minimum

__all__ = ["Antichain", "Time", "advance", "join", "less_equal", "meet", "minimum"]
