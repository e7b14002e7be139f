"""Lowering: Catalyst's optimised plan becomes a collection. One module for each family of plan nodes.

`query.lower` is the entry; `context` dispatches a node to the function that is registered for its kind.
"""
