"""SQL: plans that Spark's optimizer made, lowered to Ikebana's. Nothing here needs Spark.

`lower` turns a `Planned` query into a collection over `SourceTable`s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikebana.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ikebana.sql.lowering.query import LoweredQuery, lower
    from ikebana.sql.planned import Planned
    from ikebana.sql.relation import SourceTable

__getattr__ = lazy_names(
    __name__,
    {
        "ikebana.sql.lowering.query": ["LoweredQuery", "lower"],
        "ikebana.sql.planned": ["Planned"],
        "ikebana.sql.relation": ["SourceTable"],
    },
)

__all__ = ["LoweredQuery", "Planned", "SourceTable", "lower"]
