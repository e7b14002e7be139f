"""Messages of tables: changes are staged on the workers that own the rows, checked there, then committed or aborted.

Staged rows are in no dataflow: until a transaction is committed, no reader sees them, and aborting it leaves nothing
behind. A check reads the index of the table, and costs a look-up for each staged key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ikebana.encoding import Schema
from ikebana.operators.changes import Fields


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The definition of a table. `kind` is "keyed", "bag" or "stream"; a stream is not stored, so it has no schema.

    `schema` is the schema of the table's primary arrangement, which `dataflow` maintains. A row belongs to the worker
    that owns its key lane. Columns are sent in the order of the schema. `stored_as` is the name under which the storage
    directory has the table's rows (`ikebana.runtime.durability`); it is empty if they are not to survive.
    """

    name: str
    fields: Fields
    kind: str
    schema: Schema | None = None
    dataflow: str = ""
    stored_as: str = ""

    @property
    def key(self) -> Fields:
        """The key columns of a keyed table; empty for other tables."""
        return self.schema.key.fields if self.schema is not None and self.kind == "keyed" else ()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table, to which changes can be committed."""

    table: TableSpec


@dataclass(frozen=True, slots=True)
class ReplaceTable:
    """Give a table another definition, with further columns. Dataflows that read it without them go on.

    They, and the dataflow that has the rows without these columns, get each change without them. Both arrangements have
    the same key, so that rows belong to the same workers. The dataflow of the new definition is installed next, and
    then filled by `CopyRows`.
    """

    table: TableSpec


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Fill a table that was replaced, at the open epoch, with the rows that `source` has at all closed epochs.

    The rows get the columns that they lack from `values`, an array of one value for each.
    """

    table: str
    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DropTable:
    """Drop a table that no dataflow reads any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Add rows to a transaction, on the worker that owns them. They take effect when the transaction is committed.

    Staging the same part and attempt again replaces the earlier rows. `columns` are in the order of the table's schema;
    if all rows are to be deleted, they are only the key columns. `ops` is one op (`ikebana.runtime.staging`) for all
    rows, or an array with one for each.
    """

    transaction: int
    table: str
    part: Any
    attempt: int
    columns: tuple[Any, ...]
    ops: Any


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply the checked changes of transactions, each at its epoch, and close all epochs up to the last of these.

    `transactions` are pairs of transaction and epoch, in the order of the epochs, which are open. All transactions
    before `oldest` have ended, these included. Some worker has changes of the tables `changed`.
    """

    transactions: tuple[tuple[int, int], ...]
    oldest: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Abort:
    """Discard the staged rows of a transaction. All transactions before `oldest` have ended."""

    transaction: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Check:
    """Answer with a `Verdict` on a transaction, as soon as its tables are complete up to the current epoch.

    `parts` lists, for each table, the successful attempts as (part, attempt), in order; other attempts are ignored.
    """

    transaction: int
    parts: tuple[tuple[str, tuple[tuple[Any, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class CheckAndCommit:
    """Answer like a `Check`; if the verdict has no problems, commit the transaction at once.

    For the only worker that has rows of the transaction. The driver sends the others the `Commit` once it has the
    verdict.
    """

    check: Check
    commit: Commit


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows that a table rejects: why, how many, and examples as strings.

    The reason is "exists" (an inserted key is in the table), "twice" (it was inserted before in the same transaction),
    "missing" (a deleted row does not exist) or "memory" (the rows do not fit: the only example says how much is in
    use).
    """

    table: str
    reason: str
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A worker's answer to `Check`. The transaction can be committed if no worker reports any problems.

    Of several transactions that are prepared together, one that `conflicts` has keys in common with one before it: it
    has to be checked again, after that one.
    """

    problems: tuple[Problem, ...]
    conflicts: bool = False


ACCEPTED = Verdict(())
"""The verdict on a transaction that can be committed."""
