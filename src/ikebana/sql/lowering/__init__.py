"""Lowering: Catalyst's optimised plan becomes a collection. One module for each family of plan nodes.

`query.lower` is the entry; `handlers` is the table of functions that lower nodes; `context` dispatches to them.
"""
