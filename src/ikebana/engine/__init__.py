"""The engine, as the driver sees it: tables, transactions, collections, views and subscriptions.

`Engine` owns a cluster of workers (`ikebana.cluster`) and tells the workers which arrangements to maintain.
"""

from ikebana.engine.engine import Engine
from ikebana.engine.inputs import Input
from ikebana.engine.tables import Table, Transaction
from ikebana.engine.views import View

__all__ = ["Engine", "Input", "Table", "Transaction", "View"]
