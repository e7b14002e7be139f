"""The programs that come with Ikebana, as text: files of Datalog (`*.dl`) and grammars of Graspan (`*.grammar`).

| name | inputs | outputs |
|---|---|---|
| `dataflow` | `null`, `assign` | `reaches` |
| `points_to` | `assign`, `dereference` | `value_flow`, `memory_alias`, `value_alias` |
| `points_to_optimised` | `assign`, `dereference` | `value_flow`, `memory_alias` |
| `nulls` | the facts of C source | `null_used`; on demand `null_reaches`, `points_to`, `memory_alias` |

The grammars `dataflow` and `points_to` derive the same from graphs with the labels `n`, `e`, and `a`, `d`.
"""

from __future__ import annotations

from pathlib import Path

from ikebana.analysis.grammar import Grammar

_FOLDER = Path(__file__).parent

DATAFLOW = (_FOLDER / "dataflow.dl").read_text()
POINTS_TO = (_FOLDER / "points_to.dl").read_text()
POINTS_TO_OPTIMISED = (_FOLDER / "points_to_optimised.dl").read_text()
NULLS = (_FOLDER / "nulls.dl").read_text()

DATAFLOW_GRAMMAR = Grammar.read(_FOLDER / "dataflow.grammar")
POINTS_TO_GRAMMAR = Grammar.read(_FOLDER / "points_to.grammar")
