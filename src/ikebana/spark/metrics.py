"""Metrics of a session: figures with names and labels, for programs and for Prometheus.

    session.metrics()                       # a listing, and a list for programs
    server = session.serve_metrics(9464)    # http://127.0.0.1:9464/metrics, until server.close() or session.close()

Names follow the conventions of Prometheus: the unit is in the name, and a total that only grows ends in `_total`; its
rate is up to who reads it. `serve_metrics` needs the package `prometheus_client` (`pip install ikebana[metrics]`) and
listens on loopback unless it is told otherwise: the figures tell the names of tables and views to whoever can connect.

Cost: one request to all workers for each reading, and one more for each view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ikebana.errors import IkebanaError
from ikebana.spark.listing import Listing

if TYPE_CHECKING:
    from ikebana.spark.session import Session

NAMES = {
    "ikebana_workers": "Workers of the session.",
    "ikebana_epochs_total": "Epochs that were closed.",
    "ikebana_worker_arrangement_bytes": "Bytes of all arrangements on a worker.",
    "ikebana_worker_mapped_bytes": "How many of these bytes are in mapped files.",
    "ikebana_table_rows": "Rows of a table, and changes of it that are not compacted yet.",
    "ikebana_table_memory_bytes": "Bytes that belong to a table.",
    "ikebana_table_changes_total": "Changes of a table.",
    "ikebana_view_up": "1 if a view can be read, 0 if it has failed or some rows are in error.",
    "ikebana_view_rows": "Rows of a view, and changes of it that are not compacted yet.",
    "ikebana_view_memory_bytes": "Bytes that belong to a view.",
    "ikebana_view_changes_total": "Changes of a view.",
    "ikebana_view_lag_epochs": "Closed epochs that a view has not completed.",
    "ikebana_view_lag_seconds": "Seconds since the first of these epochs was closed.",
    "ikebana_hold_age_epochs": "How far behind the last closed epoch an epoch is that somebody keeps readable.",
    "ikebana_stream_up": "1 if a stream that a table follows is active.",
    "ikebana_stream_batches_total": "Micro-batches of a stream that were applied.",
}
"""All metrics, and what they mean."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure. `labels` tell what it is about, such as {"view": "late"}."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def help(self) -> str:
        """What it means."""
        return NAMES[self.name]


def session_metrics(session: Session) -> Listing[Metric]:
    """All metrics of a session, now."""
    return Listing(_metrics(session), Metric)


def _metrics(session: Session) -> Iterator[Metric]:
    yield Metric("ikebana_workers", {}, session.workers)
    yield Metric("ikebana_epochs_total", {}, session.epoch)
    statuses = session.engine.status()
    for worker in range(session.workers):
        label, own = {"worker": str(worker)}, [status for status in statuses if status.worker == worker]
        size = sum(status.bytes + status.inner_bytes for status in own)
        yield Metric("ikebana_worker_arrangement_bytes", label, size)
        yield Metric("ikebana_worker_mapped_bytes", label, sum(status.mapped_bytes for status in own))
    owned = {(info.kind, info.name): info.own for info in session.memory()}
    with session._relations.lock:
        tables = {table.name: table._inner.spec.dataflow for table in session._relations.tables.values()}
        views = {view.name: view._inner.dataflow for view in session._relations.views.values()}
    for kind, dataflows in (("table", tables), ("view", views)):
        for name, dataflow in dataflows.items():
            shards = [status for status in statuses if status.dataflow == dataflow]
            label = {kind: name}
            yield Metric(f"ikebana_{kind}_rows", label, sum(shard.rows for shard in shards))
            yield Metric(f"ikebana_{kind}_memory_bytes", label, owned.get((kind, name), 0))
            yield Metric(f"ikebana_{kind}_changes_total", label, sum(shard.changes for shard in shards))
    yield from _view_states(session)
    for held in session.holds():
        yield Metric("ikebana_hold_age_epochs", {"name": held.name, "held_by": held.held_by}, held.epochs_back)
    for number, stream in enumerate(list(session._streams)):
        label = {"table": stream.table, "stream": stream.query.name or str(number)}
        yield Metric("ikebana_stream_up", label, int(stream.query.isActive))
        yield Metric("ikebana_stream_batches_total", label, stream.batches)


def _view_states(session: Session) -> Iterator[Metric]:
    for view in session.views():
        label = {"view": view.name}
        yield Metric("ikebana_view_up", label, int(view.state == "live"))
        yield Metric("ikebana_view_lag_epochs", label, view.epochs_behind)
        yield Metric("ikebana_view_lag_seconds", label, view.seconds_behind)


# Prometheus.


class MetricsServer:
    """Serves metrics over HTTP in a thread, in the text format of Prometheus; `Session.serve_metrics` starts it."""

    def __init__(self, read: Callable[[], Iterable[Metric]], host: str, port: int) -> None:
        """`read` returns the metrics now. Port 0 stands for any that is free."""
        client = _prometheus_client()
        registry = client.CollectorRegistry()
        registry.register(_Collector(read))
        try:
            self._server, self._thread = client.start_http_server(port, host, registry)
        except OSError as error:
            raise IkebanaError(
                f"cannot serve metrics on {host}:{port}", detail=str(error), hint="give another port, or 0 for any"
            ) from error
        self.host, self.port = host, int(self._server.server_port)

    def close(self) -> None:
        """Stop serving. Closing twice does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __repr__(self) -> str:
        return f"<metrics on http://{self.host}:{self.port}/metrics>"


class _Collector:
    """What Prometheus asks for the metrics."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> list[Any]:
        """The metrics now, by name; none if the session was closed."""
        core = _prometheus_client().metrics_core
        families: dict[str, Any] = {}
        try:
            metrics = list(self._read())
        except IkebanaError:
            return []
        for metric in metrics:
            family = families.get(metric.name)
            if family is None:
                kind = core.CounterMetricFamily if metric.name.endswith("_total") else core.GaugeMetricFamily
                family = families[metric.name] = kind(metric.name, metric.help, labels=list(metric.labels))
            family.add_metric(list(metric.labels.values()), metric.value)
        return list(families.values())


def _prometheus_client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.metrics_core
    except ImportError:
        raise IkebanaError(
            "serving metrics needs the package prometheus_client", hint="pip install 'ikebana[metrics]'"
        ) from None
    return prometheus_client
