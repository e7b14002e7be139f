"""Write the storage directory of a small session as test data: `python -m tests.durability.write_session 1`.

`tests/durability/data/session-1` was written like this. Every later version opens it, without Spark
(`tests/durability/test_stored_sessions.py`) and with it (`tests/spark/test_stored_sessions.py`), with the same and with
another number of workers. A directory is never written again: when something new is stored, or the version of the hash
functions rises, the script writes another one, which the tests then open as well.

Two sessions with two workers have written it, and the second one has crashed. There are tables whose keys are hashed,
packed and plain, values of many types, a bag, a column that was added, retained history, a view, a statement, two named
subscriptions of which one was acknowledged in a transaction, batches of a snapshot, and a log after it.
"""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

DATA = Path(__file__).parent / "data"
SECRET = b"a secret of tests, of 32 bytes.."

Row = tuple[Any, ...]

SCHEMAS = {
    "products": "sku STRING, name STRING, price DECIMAL(10, 2), weight DOUBLE, stock INT, sold_on DATE, "
    "changed TIMESTAMP, is_new BOOLEAN, tags ARRAY<STRING>, size STRUCT<w: INT, h: INT>, parts MAP<STRING, INT>, "
    "picture BINARY",
    "orders": "customer STRING, number INT, total BIGINT",
    "readings": "sensor SMALLINT, hour INT, value FLOAT",
    "people": "id BIGINT, name STRING",
    "accounts": "number DECIMAL(30, 4), owner STRING",
    "visits": "who STRING, page STRING",
    "bills": "epoch BIGINT, rows BIGINT",
}
KEYS = {
    "products": ["sku"],
    "orders": ["customer", "number"],
    "readings": ["sensor", "hour"],
    "people": ["id"],
    "accounts": ["number"],
    "bills": ["epoch"],
}

_DAY, _TIME = date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)

FIRST: dict[str, list[Row]] = {
    "products": [
        ("", None, None, None, None, None, None, None, None, None, None, None),
        ("a", "apple", Decimal("0.10"), -0.0, 3, _DAY, _TIME, True, ["x", None], (1, None), {"b": 2, "a": 1}, b"\0\1"),
        ("ü" * 40, "long", Decimal("-5.00"), float("inf"), -(2**31), date(1, 1, 1), _TIME, False, [], (0, 0), {}, b""),
        ("dropped", "gone", None, 1.5, 0, None, None, True, ["y"], None, None, None),
    ],
    "orders": [(customer, number, 10 * number) for customer in ("ann", "bob", "çan") for number in (1, 2, 3)],
    "readings": [(sensor, hour, sensor / 4) for sensor in (-2, 0, 7) for hour in (-1, 0, 100_000)],
    "people": [(-(2**63), "least"), (-1, "minus"), (0, ""), (1, "one"), (2**63 - 1, "most")],
    "accounts": [(Decimal("-1.0000"), "ann"), (Decimal("12345678901234567890123456.7890"), None)],
    "visits": [("ann", "/"), ("ann", "/"), ("bob", None), ("eve", "/a")],
}

ROWS: dict[str, list[Row]] = {
    **FIRST,
    "products": [*FIRST["products"][:3], ("z", "zebra", None, 2.5, 1, None, None, None, None, None, None, None)],
    "orders": [*(row for row in FIRST["orders"] if row != ("bob", 2, 20)), ("dee", 1, 7)],
    "people": [
        *((*row, "early") for row in FIRST["people"] if row[0] != 1),
        (1, "changed", "late"),
        (5, "five", None),
    ],
    "visits": [*FIRST["visits"][1:], ("new", "/new")],
}
"""The rows in the end, except for those of `bills`, which are epochs."""

TOTALS = "SELECT customer, sum(total) AS total FROM orders GROUP BY customer"


def write(path: Path) -> None:
    """Write the directory. Needs Spark."""
    import ikebana as ik

    with TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        with ik.connect(workers=2, storage=str(place)) as session:
            for name, schema in SCHEMAS.items():
                retain = "36500 days" if name == "orders" else None
                session.create_table(name, schema, key=KEYS.get(name), retain=retain)
            session.view("totals", TOTALS)
            session.view("seen", "SELECT who, page FROM visits")
            session.prepare("SELECT number FROM orders WHERE customer = :c", name="by customer", c="STRING")
            for name, rows in FIRST.items():
                session.table(name).insert(rows)
            session.view("seen").changes("now", name="audit")
            billing = session.view("totals").changes(name="billing")
            epoch, changes = next(billing)
            with session.transaction():
                session.table("bills").insert([(epoch, changes.num_rows)])
                billing.ack(epoch)
        with ik.connect(workers=2, storage=str(place)) as session:
            session.table("people").add_column("origin", "STRING", "early")
            storage = session.engine.storage
            assert storage is not None
            storage.snapshot()
            change(session)
            with storage._snapshot_lock:
                copy_crashed(place, path)


def change(session: Any) -> None:
    """The transactions after the last snapshot."""
    session.table("products").delete([("dropped",)])
    session.table("products").insert([("z", "zebra", None, 2.5, 1, None, None, None, None, None, None, None)])
    session.table("orders").delete([("bob", 2)])
    session.table("people").upsert([(1, "changed", "late"), (5, "five", None)])
    session.table("orders").insert([("dee", 1, 7)])
    with session.transaction():
        session.table("visits").delete([("ann", "/")])
        session.table("visits").insert([("new", "/new")])
    audit = session.view("seen").changes(name="audit")
    epoch, _ = next(audit)
    audit.ack(epoch)


def copy_crashed(place: Path, path: Path) -> None:
    """Copy a directory that is in use, as a crash would leave it, but without the zeros at the ends of logs."""
    shutil.copytree(place, path, ignore=shutil.ignore_patterns("lock"))
    for file in path.rglob("*"):
        if file.name.startswith(("log-", "journal-")):
            content = file.read_bytes().rstrip(b"\0")
            file.write_bytes(content + bytes(-len(content) % 8))


def main(number: str) -> None:
    with TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
        os.environ["IKEBANA_SECRET_FILE"] = str(secret)
        with patch("socket.gethostname", return_value="tests"), patch("getpass.getuser", return_value="tests"):
            write(DATA / f"session-{number}")


if __name__ == "__main__":
    main(sys.argv[1])
