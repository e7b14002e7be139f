"""How Catalyst's nodes are lowered, a module for each family. Importing this package registers all of them."""

from ikebana.sql.nodes import aggregates, joins, leaves, limits, rows

__all__ = ["aggregates", "joins", "leaves", "limits", "rows"]
