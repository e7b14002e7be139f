"""Window functions: ranks, values of other rows, and aggregates over frames, maintained partition by partition."""

from ikebana.reducers.windows.functions import DefaultValue, Extreme, Nth, Ntile, OverFrame, Rank, Shift, WindowCall
from ikebana.reducers.windows.gathered import CountDistinct, Gathered, SumsCall
from ikebana.reducers.windows.partitions import RUNNING, VALUE, WHOLE, Bound, Frame
from ikebana.reducers.windows.reducer import WindowReducer
from ikebana.reducers.windows.sessions import SessionWindow

__all__ = [
    "RUNNING",
    "VALUE",
    "WHOLE",
    "Bound",
    "CountDistinct",
    "DefaultValue",
    "Extreme",
    "Frame",
    "Gathered",
    "Nth",
    "Ntile",
    "OverFrame",
    "Rank",
    "SessionWindow",
    "Shift",
    "SumsCall",
    "WindowCall",
    "WindowReducer",
]
