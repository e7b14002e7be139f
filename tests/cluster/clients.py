"""Clients of tests: a table and a view on worker processes, and keys for jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from ikebana.cluster.client_keys import ClientCredentials
from ikebana.cluster.driver import Driver
from ikebana.cluster.protocol import Grant
from ikebana.engine import Engine
from ikebana.engine.tables import Table, Transaction
from ikebana.runtime.messages import Demand, Hold, Ping, Read, Release
from ikebana.runtime.staging import stages

LONG = 1000.0
_names = count()
_engines: WeakKeyDictionary[Driver, Engine] = WeakKeyDictionary()
"""The engine of each cluster: engines number transactions and holds."""


def engine_of(cluster: Driver) -> Engine:
    """The only engine of a cluster."""
    if cluster not in _engines:
        _engines[cluster] = Engine(cluster=cluster)
    return _engines[cluster]


class Job:
    """A job that stages rows for a table of its own, and reads them."""

    def __init__(self, cluster: Driver, seconds: float = LONG) -> None:
        self.cluster, self.engine = cluster, engine_of(cluster)
        self.table: Table = self.engine.table(f"t{next(_names)}", {"k": pa.int64(), "s": pa.string()}, key="k")
        self.view = self.engine.install(f"v{next(_names)}", self.table)
        cluster.ask(Ping(self.view.dataflow))  # the workers know table and view
        self.transaction: Transaction = self.engine.transaction()
        self.grant = Grant(seconds, stages=((self.transaction.number, self.table.spec.name),))
        self.credentials: ClientCredentials = cluster.keys.issue(self.grant)

    def stages(self, keys: Any, part: int = 0) -> Iterator[tuple[int, Any]]:
        """What the job sends to which worker, to stage rows with these keys."""
        data = {"k": pa.array(keys, pa.int64()), "s": pa.array([f"row {key}" for key in keys])}
        number = self.transaction.number
        return stages(self.table.spec, data, "insert", transaction=number, part=(part, 0), workers=self.cluster.size)

    def commit(self, *parts: int) -> int:
        """Commit what the job has staged; returns the epoch."""
        self.transaction._adopt(self.table, [((part, 0), 0) for part in parts])
        return self.transaction.commit()

    @contextmanager
    def held(self, epoch: int, seconds: float = LONG) -> Iterator[tuple[ClientCredentials, Read]]:
        """The key of a job that reads the view at an epoch, and its request."""
        hold = self.engine.coordinator.new_number()
        self.cluster.command(Hold(hold, self.view.dataflow, epoch))
        self.cluster.command(Demand(self.view.dataflow, epoch + 1))
        credentials = self.cluster.keys.issue(Grant(seconds, holds=((hold, self.view.dataflow),)))
        yield credentials, Read(self.view.dataflow, (epoch,), hold, wait=True)
        self.cluster.command(Release(hold))
