"""Which results follow from the inputs at an epoch, and which depend on the changes before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.engine.collection import ExtensionIndex
from ikebana.engine.delta_join import natural_join
from ikebana.graph import motifs
from ikebana.graph.triangles import triangles
from ikebana.plan.history import depends_on_history

EXACT: dict[str, Callable[..., Any]] = {
    "rows": lambda a, b: a,
    "join": lambda a, b: a.join(b.select("k", w="v"), on="k"),
    "sum of a delta join": lambda a, b: natural_join(a, b.select("k", w="v"), a.select(w="v", x="k")).count("k"),
    "concatenated joins": lambda a, b: natural_join(a, b.select("k", w="v")).concat(
        natural_join(b, a.select("k", w="v"))
    ),
    "triangles": lambda a, b: triangles(a.concat(b).select(src="k", dst="v").distinct()),
    "motif": lambda a, b: motifs.find(
        None, a.concat(b).select(src="k", dst="v").distinct(), "(a)-[]->(b); (b)-[]->(c); !(a)-[]->(c)"
    ),
    "loop": lambda a, b: a.iterate(lambda x: x.concat(b.enter(x)).distinct()),
}
HISTORICAL: dict[str, Callable[..., Any]] = {
    "half join": lambda a, b: a.half_join(b.select("k", w="v").arrange("k")),
    "count of a half join": lambda a, b: a.half_join(b.select("k", w="v").arrange("k")).count("k"),
    "half join of a half join": lambda a, b: a.half_join(b.select("k", w="v").arrange("k")).half_join(
        b.select(w="k", x="v").arrange("w")
    ),
    "delta join with a count of a half join": lambda a, b: natural_join(
        a, a.half_join(b.select("k", w="v").arrange("k")).count("k")
    ),
    "extension": lambda a, b: a.extend("w", [ExtensionIndex(b.arrange("k"), "k")]),
    "one path beside a delta join": lambda a, b: natural_join(a, b.select("k", w="v")).concat(
        a.half_join(b.select("k", w="v").arrange("k"))
    ),
}


@pytest.mark.parametrize("name", [*EXACT, *HISTORICAL])
def test_results_that_depend_on_history(name: str) -> None:
    with Engine() as engine:
        a, b = (engine.input(letter, {"k": pa.int64(), "v": pa.int64()}) for letter in "ab")
        query = {**EXACT, **HISTORICAL}[name]
        assert depends_on_history(query(a, b).arrange().node) == (name in HISTORICAL)
