"""The catalogue: what was put is there, in order, and journals do not grow without bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.storage import DeleteEntry, LocalDirectory, PutEntry, StorageCatalog, catalog
from ikebana.storage.catalog import read_catalog
from tests.storage.memory_disk import MemoryDisk

changes = st.lists(
    st.builds(PutEntry, st.sampled_from("ab"), st.sampled_from("xyz"), st.integers() | st.text(max_size=3))
    | st.builds(DeleteEntry, st.sampled_from("ab"), st.sampled_from("xyz")),
    max_size=3,
)


@given(st.lists(changes | st.none(), max_size=8))
def test_oracle_a_catalogue_is_a_dictionary(steps: list[list[PutEntry | DeleteEntry] | None]) -> None:
    directory = LocalDirectory("/data", MemoryDisk())
    entries = StorageCatalog(directory, "catalog", 1, {"a": {"first": 1}})
    model: dict[str, dict[str, Any]] = {"a": {"first": 1}, "b": {}}
    for step in steps:
        if step is None:
            entries.compact()
            continue
        entries.update(step)
        for change in step:
            if isinstance(change, PutEntry):
                model[change.kind][change.name] = change.value
            else:
                model[change.kind].pop(change.name, None)
    stored = read_catalog(directory, "catalog")
    for kind, expected in model.items():
        assert list(entries.entries(kind).items()) == list(expected.items())
        assert list(stored.get(kind, {}).items()) == list(expected.items())


def test_a_long_journal_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_COMPACTED_FROM", 2_000)
    disk = MemoryDisk()
    entries = StorageCatalog(LocalDirectory("/data", disk), "catalog", 1, {})
    for number in range(100):
        entries.put("position", "orders", {"batch": number})
    assert disk.files() != ["/data/catalog/journal-000000-000000"]
    assert len(disk.files()) == 1
    assert read_catalog(LocalDirectory("/data", disk), "catalog") == {"position": {"orders": {"batch": 99}}}


def test_values_are_copied() -> None:
    entries = StorageCatalog(LocalDirectory("/data", MemoryDisk()), "catalog", 1, {})
    value = {"columns": ["a"]}
    entries.put("table", "t", value)
    value["columns"].append("b")
    assert entries.get("table", "t") == {"columns": ["a"]}
