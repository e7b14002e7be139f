"""SQL: plans that Spark's optimizer made, lowered to Ikebana's. Nothing here needs Spark.

`lower` turns a `Planned` query into a collection over `SourceTable`s.
"""

from ikebana.sql.lowering.query import Lowered, lower
from ikebana.sql.planned import Planned
from ikebana.sql.relation import SourceTable

__all__ = ["Lowered", "Planned", "SourceTable", "lower"]
