"""Ikebana: shared arrangements for Spark.

Many standing queries over changing data, each kept up to date change by change, all reading the same
in-memory, multiversioned indexes. See README.md for a first program, `ikebana.model` for what everything
means, and docs/ARCHITECTURE.md for how it is built.
"""

from ikebana.collection import Arrangement, Collection, iterate, natural_join
from ikebana.dataflow.transport.zeromq import Processes
from ikebana.engine import Engine, Input, View
from ikebana.errors import DataflowError, DroppedError, IkebanaError, SchemaError, TimeError
from ikebana.operators import Arrange
from ikebana.time import Antichain, Time
from ikebana.trace import EDGES, FLAT, Handle, Import, Reader, Schema, Updates

__version__ = "0.1.0.dev0"

__all__ = [
    "EDGES",
    "FLAT",
    "Antichain",
    "Arrange",
    "Arrangement",
    "Collection",
    "DataflowError",
    "DroppedError",
    "Engine",
    "Handle",
    "IkebanaError",
    "Import",
    "Input",
    "Processes",
    "Reader",
    "Schema",
    "SchemaError",
    "Time",
    "TimeError",
    "Updates",
    "View",
    "iterate",
    "natural_join",
]
