"""The engine, as the driver sees it: tables, transactions, collections, views and subscriptions.

`Engine` owns a cluster of workers (`ikebana.cluster`) and tells the workers which arrangements to maintain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikebana.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ikebana.engine.engine import Engine
    from ikebana.engine.inputs import Input
    from ikebana.engine.tables import Table, Transaction
    from ikebana.engine.views import View

__getattr__ = lazy_names(
    __name__,
    {
        "ikebana.engine.engine": ["Engine"],
        "ikebana.engine.inputs": ["Input"],
        "ikebana.engine.tables": ["Table", "Transaction"],
        "ikebana.engine.views": ["View"],
    },
)

__all__ = ["Engine", "Input", "Table", "Transaction", "View"]
