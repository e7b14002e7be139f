"""The programs of the tests of hosted workers, and helpers; also imported by the scripts that the tests run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

from ikebana.cluster import Cluster
from tests import clusters


def leads_on(columns: dict[str, pa.Array]) -> Any:
    """A function that workers have to import by its name."""
    return pa.compute.not_equal(columns["src"], columns["dst"])


def program(cluster: Cluster, epochs: int = 4) -> list[Any]:
    """The program of all clusters, with steps that call a function which workers have to import."""
    return clusters.program(cluster, epochs=epochs, steps=lambda edges: edges.filter(leads_on))
