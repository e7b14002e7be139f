"""Window functions: ranks, values of other rows, and aggregates over frames, maintained partition by partition."""

from ikebana.reducers.windows.functions import DefaultValue, Extreme, Nth, Ntile, OverFrame, Rank, Shift, WindowCall
from ikebana.reducers.windows.partitions import RUNNING, VALUE, WHOLE, Bound, Frame
from ikebana.reducers.windows.reducer import WindowReducer

__all__ = [
    "RUNNING",
    "VALUE",
    "WHOLE",
    "Bound",
    "DefaultValue",
    "Extreme",
    "Frame",
    "Nth",
    "Ntile",
    "OverFrame",
    "Rank",
    "Shift",
    "WindowCall",
    "WindowReducer",
]
