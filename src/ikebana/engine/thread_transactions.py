"""The transaction whose `with` block a thread is in: changes and acknowledgements of the thread belong to it.

Each thread has at most one such transaction for each engine. A thread that was started inside the block is not in it.
The registry does not keep engines alive.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ikebana.engine.coordinator import Coordinator
    from ikebana.engine.tables import Transaction


class _Thread(threading.local):
    """The transactions whose `with` blocks a thread is in, by engine: at most one of each."""

    def __init__(self) -> None:
        self.transactions: weakref.WeakKeyDictionary[Coordinator, Transaction] = weakref.WeakKeyDictionary()


_thread = _Thread()


def current_transaction(coordinator: Coordinator) -> Transaction | None:
    """Return the transaction whose `with` block the calling thread is in."""
    return _thread.transactions.get(coordinator)


def enter_transaction(coordinator: Coordinator, transaction: Transaction) -> None:
    """Let changes of the calling thread belong to a transaction."""
    _thread.transactions[coordinator] = transaction


def leave_transaction(coordinator: Coordinator) -> None:
    """Let changes of the calling thread be transactions of their own again."""
    _thread.transactions.pop(coordinator, None)
