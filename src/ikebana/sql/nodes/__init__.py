"""How Catalyst's nodes are lowered, a module for each family. Importing this package registers all of them."""

from ikebana.sql.nodes import aggregates, functions, generating, joins, leaves, limits, recursion, rows, windows

__all__ = ["aggregates", "functions", "generating", "joins", "leaves", "limits", "recursion", "rows", "windows"]
