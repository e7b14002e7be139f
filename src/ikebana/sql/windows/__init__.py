"""Window functions: ranks, values of other rows, and aggregates over frames, maintained partition by partition."""

from ikebana.sql.windows.calls import Constant, Extreme, Nth, Ntile, OverFrame, Rank, Shift, WindowCall
from ikebana.sql.windows.logic import WindowLogic
from ikebana.sql.windows.partition import RUNNING, WHOLE, Frame

__all__ = [
    "RUNNING",
    "WHOLE",
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
