"""The programs of the tests of hosted workers, and helpers; also imported by the scripts that the tests run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ikebana.cluster import Cluster
from ikebana.engine import Engine, View
from tests import clusters
from tests.clusters import EDGES

SOON = 15.0
"""How many seconds it may take to notice a failure and clean up, even on a busy machine."""


def leads_on(columns: dict[str, pa.Array]) -> Any:
    """A function that workers have to import by its name."""
    return pa.compute.not_equal(columns["src"], columns["dst"])


def program(cluster: Cluster, epochs: int = 4) -> list[Any]:
    """The program of all clusters, with steps that call a function which workers have to import."""
    return clusters.program(cluster, epochs=epochs, steps=lambda edges: edges.filter(leads_on))


def all_end(pids: list[int], seconds: float = SOON) -> bool:
    return clusters.all_end(pids, seconds)


def endless(cluster: Cluster) -> View:
    """A view that never completes: its function does not return."""
    engine = Engine(cluster=cluster)
    edges = engine.input("edges", EDGES)
    view = engine.install("endless", edges.filter(lambda columns: time.sleep(1000)))
    edges.insert({"src": np.arange(10), "dst": np.arange(10)})
    engine.advance()
    return view
