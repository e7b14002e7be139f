"""Window functions: ranks, values of other rows, and aggregates over frames, maintained partition by partition."""

from ikebana.reducers.windows.functions import ConstantFunction, Extreme, Nth, Ntile, OverFrame, Rank, Shift, WindowCall
from ikebana.reducers.windows.partitions import RUNNING, VALUE, WHOLE, Bound, Frame
from ikebana.reducers.windows.reducer import WindowLogic

__all__ = [
    "RUNNING",
    "VALUE",
    "WHOLE",
    "Bound",
    "ConstantFunction",
    "Extreme",
    "Frame",
    "Nth",
    "Ntile",
    "OverFrame",
    "Rank",
    "Shift",
    "WindowCall",
    "WindowLogic",
]
