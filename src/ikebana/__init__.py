"""Ikebana: shared arrangements for Spark.

Many standing queries over changing data, all kept up to date incrementally, all reading the same multiversioned indexes
in memory. See README.md for a first program, `ikebana.model` for the semantics, and docs/ARCHITECTURE.md for the
design.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ikebana.lazy_imports import lazy_names

# NumPy reads this when it is imported. By default it asks for huge pages for large arrays, and the first write to such
# a page waits for the system: docs/decisions/2026-11-16-huge-pages-for-finished-batches-only.md.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

if TYPE_CHECKING:
    from ikebana.cluster.processes import Processes
    from ikebana.encoding import Schema
    from ikebana.engine import Engine, Input, View
    from ikebana.engine.collection import Arrangement, Collection, iterate
    from ikebana.engine.delta_join import natural_join
    from ikebana.errors import (
        ChangeError,
        ConstantRowsWarning,
        DataflowError,
        DatalogError,
        DroppedError,
        EvaluationError,
        IkebanaError,
        MemoryBudgetError,
        SchemaError,
        SqlError,
        TimeError,
        WaitTimeoutError,
        WorkerLostError,
    )
    from ikebana.operators import Arrange
    from ikebana.spark import Session
    from ikebana.time import Antichain, Time
    from ikebana.trace import BatchQueue, Handle, Reader, Updates

__version__ = "0.2.0.dev0"

__getattr__ = lazy_names(
    __name__,
    {
        "ikebana.cluster.processes": ["Processes"],
        "ikebana.encoding": ["Schema"],
        "ikebana.engine": ["Engine", "Input", "View"],
        "ikebana.engine.collection": ["Arrangement", "Collection", "iterate"],
        "ikebana.engine.delta_join": ["natural_join"],
        "ikebana.errors": [
            *("ChangeError", "ConstantRowsWarning", "DataflowError", "DatalogError", "DroppedError", "EvaluationError"),
            *("IkebanaError", "MemoryBudgetError", "SchemaError", "SqlError", "TimeError", "WaitTimeoutError"),
            "WorkerLostError",
        ],
        "ikebana.operators": ["Arrange"],
        "ikebana.time": ["Antichain", "Time"],
        "ikebana.trace": ["BatchQueue", "Handle", "Reader", "Updates"],
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def connect(spark: Any = None, workers: int | None = None, **options: Any) -> Session:
    """Start workers as tasks of a Spark job, and return a session that owns them.

    spark: the SparkSession that hosts the workers. By default the active one; if there is none, a local one is started,
        and stopped when the session is closed.
    workers: the number of workers. By default one for each processor, as far as Spark has free task slots.
    options: the options of `ikebana.spark.connect`, among them `timeout`, `share` and `memory`.
    """
    from ikebana import spark as ikebana_spark

    return ikebana_spark.connect(spark, workers, **options)


__all__ = [
    "Antichain",
    "Arrange",
    "Arrangement",
    "BatchQueue",
    "ChangeError",
    "Collection",
    "ConstantRowsWarning",
    "DataflowError",
    "DatalogError",
    "DroppedError",
    "Engine",
    "EvaluationError",
    "Handle",
    "IkebanaError",
    "Input",
    "MemoryBudgetError",
    "Processes",
    "Reader",
    "Schema",
    "SchemaError",
    "SqlError",
    "Time",
    "TimeError",
    "Updates",
    "View",
    "WaitTimeoutError",
    "WorkerLostError",
    "connect",
    "iterate",
    "natural_join",
]
