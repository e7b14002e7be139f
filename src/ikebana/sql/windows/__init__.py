"""Window functions: ranks, values of other rows, and aggregates over frames, maintained partition by partition."""

from ikebana.sql.windows.calls import Constant, Extreme, Nth, Ntile, OverFrame, Rank, Shift, WindowCall
from ikebana.sql.windows.logic import WindowLogic
from ikebana.sql.windows.partition import RUNNING, VALUE, WHOLE, Bound, Frame

__all__ = [
    "RUNNING",
    "VALUE",
    "WHOLE",
    "Bound",
    "Constant",
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
