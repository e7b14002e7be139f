"""GROUP BY session_window(time, gap): the rows of a group whose intervals overlap are one session.

Spark's plan groups by a struct, the interval from a row's time to the end of its gap, and merges intervals when it runs
the query; the metadata of the struct says so. Here the struct is replaced by that of the whole session before grouping.
A change costs time in proportion to the rows of its group in all sessions.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.errors import SqlError
from ikebana.expressions.core.tree import Tree
from ikebana.reducers import windows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.planned import SESSION_WINDOW
from ikebana.sql.relation import Relation, from_collection, unique_name


def with_sessions(lowering: Lowering, relation: Relation, groupings: Sequence[Tree]) -> Relation:
    """A relation that is going to be grouped, with sessions in place of the intervals of its rows."""
    sessions = [tree for tree in groupings if tree.fields.get("metadata", {}).get(SESSION_WINDOW)]
    if not sessions:
        return relation
    if len(sessions) > 1:
        raise SqlError("several session windows in one GROUP BY are not supported", hint="use a subquery for each")
    (session,) = sessions
    columns = relation.columns()
    named = [(name, relation.outputs[attribute]) for attribute, name in columns]
    interval = dict(columns)[session.expr_id]
    by = list[str]()
    for grouping in groupings:
        if grouping is not session:
            by.append(unique_name("group", [name for name, _ in named]))
            named.append((by[-1], lowering.expression(grouping, relation.outputs)))
    merged = unique_name("session", [name for name, _ in named])
    call = windows.SessionWindow(merged, interval)
    reducer = windows.WindowReducer((SortKey(interval),), (call,))
    rows = relation.rows(named).arrange_by(relation.key(by)).reduce(reducer).rows()
    attributes = [(attribute, merged if attribute == session.expr_id else name) for attribute, name in columns]
    return from_collection(rows, attributes, relation.names)
