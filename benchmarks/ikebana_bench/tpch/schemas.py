"""The eight tables of TPC-H and its 22 queries.

All columns are NOT NULL, amounts are DECIMAL(15, 2), and every table has a key.
"""

from __future__ import annotations

import re
from importlib.resources import files

import pyarrow as pa

from ikebana.errors import IkebanaError

QUERIES = range(1, 23)
"""The numbers of the queries."""

MINIMUM_SCALE = 0.01
"""At smaller scales, the generated partsupp table has duplicate keys."""

_MONEY = pa.decimal128(15, 2)
_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "region": {"r_regionkey": pa.int64(), "r_name": pa.string(), "r_comment": pa.string()},
    "nation": {"n_nationkey": pa.int64(), "n_name": pa.string(), "n_regionkey": pa.int64(), "n_comment": pa.string()},
    "supplier": {
        "s_suppkey": pa.int64(),
        "s_name": pa.string(),
        "s_address": pa.string(),
        "s_nationkey": pa.int64(),
        "s_phone": pa.string(),
        "s_acctbal": _MONEY,
        "s_comment": pa.string(),
    },
    "customer": {
        "c_custkey": pa.int64(),
        "c_name": pa.string(),
        "c_address": pa.string(),
        "c_nationkey": pa.int64(),
        "c_phone": pa.string(),
        "c_acctbal": _MONEY,
        "c_mktsegment": pa.string(),
        "c_comment": pa.string(),
    },
    "part": {
        "p_partkey": pa.int64(),
        "p_name": pa.string(),
        "p_mfgr": pa.string(),
        "p_brand": pa.string(),
        "p_type": pa.string(),
        "p_size": pa.int32(),
        "p_container": pa.string(),
        "p_retailprice": _MONEY,
        "p_comment": pa.string(),
    },
    "partsupp": {
        "ps_partkey": pa.int64(),
        "ps_suppkey": pa.int64(),
        "ps_availqty": pa.int32(),
        "ps_supplycost": _MONEY,
        "ps_comment": pa.string(),
    },
    "orders": {
        "o_orderkey": pa.int64(),
        "o_custkey": pa.int64(),
        "o_orderstatus": pa.string(),
        "o_totalprice": _MONEY,
        "o_orderdate": pa.date32(),
        "o_orderpriority": pa.string(),
        "o_clerk": pa.string(),
        "o_shippriority": pa.int32(),
        "o_comment": pa.string(),
    },
    "lineitem": {
        "l_orderkey": pa.int64(),
        "l_partkey": pa.int64(),
        "l_suppkey": pa.int64(),
        "l_linenumber": pa.int32(),
        "l_quantity": _MONEY,
        "l_extendedprice": _MONEY,
        "l_discount": _MONEY,
        "l_tax": _MONEY,
        "l_returnflag": pa.string(),
        "l_linestatus": pa.string(),
        "l_shipdate": pa.date32(),
        "l_commitdate": pa.date32(),
        "l_receiptdate": pa.date32(),
        "l_shipinstruct": pa.string(),
        "l_shipmode": pa.string(),
        "l_comment": pa.string(),
    },
}

TABLES = tuple(_COLUMNS)
"""The names of the tables; a table comes after the tables that it refers to."""

SCHEMAS = {
    name: pa.schema([pa.field(column, kind, nullable=False) for column, kind in columns.items()])
    for name, columns in _COLUMNS.items()
}
"""The columns of each table."""

KEYS = {name: [next(iter(columns))] for name, columns in _COLUMNS.items()} | {
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}
"""The key columns of each table."""


def query(number: int) -> str:
    """Return the text of a query.

    >>> query(6).split()[:2]
    ['select', 'sum(l_extendedprice']
    """
    return (files("ikebana_bench.tpch") / "queries" / f"q{number}.sql").read_text(encoding="utf-8")


def tables_of(number: int) -> list[str]:
    """Return the names of the tables that a query reads.

    >>> tables_of(13)
    ['customer', 'orders']
    """
    words = set(re.findall(r"\w+", query(number)))
    return [name for name in TABLES if name in words]


def numbers(text: str) -> list[int]:
    """Return the query numbers of a command-line option: "all", or numbers separated by commas.

    >>> numbers("3,22")
    [3, 22]
    """
    words = list(map(str, QUERIES)) if text == "all" else [word.strip() for word in text.split(",")]
    if not {*words} <= {*map(str, QUERIES)}:
        raise IkebanaError(
            f"there are no queries {text!r}", hint="use numbers from 1 to 22 separated by commas, or all"
        )
    return [int(word) for word in dict.fromkeys(words)]
