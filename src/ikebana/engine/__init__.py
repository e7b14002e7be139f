"""The engine, as the driver sees it: tables, transactions, collections, views and subscriptions.

`Engine` owns a cluster of workers (`ikebana.cluster`) and says what each of them maintains.
"""

from ikebana.engine.engine import Engine, Input
from ikebana.engine.tables import Table, Transaction
from ikebana.engine.views import View

__all__ = ["Engine", "Input", "Table", "Transaction", "View"]
