"""What earlier versions of sessions have stored comes back as sessions: views, history, subscriptions and statements.

The directories are those of `tests/durability/test_stored_sessions.py`; see `tests.durability.write_session`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ikebana as ik
from tests.clusters import SOON
from tests.durability.write_session import DATA, FIRST, ROWS, SECRET
from tests.spark.test_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("alone")]


def totals(orders: list[tuple[str, int, int]]) -> list[tuple[str, int]]:
    customers = {customer for customer, _, _ in orders}
    return sorted((who, sum(total for customer, _, total in orders if customer == who)) for who in customers)


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_a_session_of_an_earlier_version_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    monkeypatch.setenv("IKEBANA_SECRET_FILE", str(secret))
    place = shutil.copytree(DATA / name, tmp_path / "store")
    for workers in (2, 1):
        with ik.connect(spark, workers=workers, storage=str(place)) as session:
            found = session.recovered
            assert found is not None and not found.failed
            assert set(found.views) == {"totals", "seen"} and found.statements == ("by customer",)
            view = session.view("totals")
            assert rows_of(view) == totals(ROWS["orders"]) and view.verify()
            assert sorted(session.statement("by customer").read(c="bob")["number"].to_pylist()) == [1, 3]
            (bill,) = session.table("bills").collect()
            epoch = bill.epoch
            history = session.table("orders").to_arrow(at=epoch).to_pylist()
            assert sorted(tuple(row.values()) for row in history) == sorted(FIRST["orders"])
            billing = view.changes(name="billing", timeout=SOON / 60)
            changes = [sorted(tuple(row.values()) for row in part.to_pylist()) for _, part in billing]
            assert changes == [[("bob", 40, 1), ("bob", 60, -1)], [("dee", 7, 1)]]
            billing.close()
