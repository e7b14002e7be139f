"""The catalogue: which arrangements exist, which dataflow maintains each, who uses it, and which have failed.

An arrangement is a node of a plan (`ikebana.plan.ir`); equal plans have equal digests and are the same arrangement. A
dataflow maintains one arrangement, for any number of users: tables, inputs and views. The catalogue only keeps the
books; `ikebana.engine.maintenance` installs and retires dataflows accordingly.

Invariants:

- At most one dataflow that has not failed maintains an arrangement (`maintainer`).
- A dataflow stays in the catalogue until its last user has released it, whether it has failed or not.
- A failed dataflow gets no new users: `maintainer` returns None for its arrangement, so that the next user adds another
  dataflow in its place. Those who use the failed one still have to release it.
- No two dataflows ever have the same name, not even one after the other: messages of a retired dataflow may still be
  on their way.

Names of tables, inputs and views share one namespace, which the catalogue keeps too.

Cost: a few dictionary lookups for every call. Not guaranteed: thread safety, except for `mark_failed`, which any thread
may call; the engine holds the coordinator's lock around everything else.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from ikebana.errors import DataflowError
from ikebana.plan import ir

_NUMBERED = re.compile(r" #[0-9]+$")


@dataclass(frozen=True, slots=True)
class User:
    """A table, input or view that uses an arrangement.

    `is_owner` is true if the arrangement holds the rows of this very table or view, and false if it is an index that a
    view reads or that a table keeps in addition.
    """

    kind: str
    name: str
    is_owner: bool = False


class Use(NamedTuple):
    """One use of a dataflow by one user: what `Catalog.release` takes back."""

    dataflow: str
    user: User


@dataclass(slots=True)
class _Entry:
    """A dataflow: the arrangement that it maintains, and how many uses each user has."""

    arrangement: ir.Node
    users: Counter[User] = field(default_factory=Counter)


class Catalog:
    """The arrangements of an engine, by the dataflows that maintain them."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}  # by dataflow
        self._maintainers: dict[str, str] = {}  # the latest dataflow for each arrangement, by digest
        self._failed: set[str] = set()
        self._used: set[str] = set()  # all names of dataflows without a number
        self._numbers = itertools.count(2)
        self._names: set[str] = set()

    # Arrangements and dataflows.

    def maintainer(self, arrangement: ir.Node) -> str | None:
        """Return the dataflow that maintains an arrangement; None if none does, or if it has failed."""
        dataflow = self._maintainers.get(arrangement.digest)
        return None if dataflow in self._failed else dataflow

    def add(self, dataflow: str, arrangement: ir.Node) -> None:
        """Record a dataflow that maintains an arrangement, which no other dataflow does. It has no users yet."""
        other = self.maintainer(arrangement)
        if other is not None:
            raise ValueError(f"dataflow {other!r} maintains this arrangement already")
        self._entries[dataflow] = _Entry(arrangement)
        self._maintainers[arrangement.digest] = dataflow

    def use(self, dataflow: str, user: User) -> Use:
        """Record one more use of a dataflow. The same user may use a dataflow several times."""
        self._entries[dataflow].users[user] += 1
        return Use(dataflow, user)

    def release(self, use: Use) -> bool:
        """Take back one use; return whether it was the last, after which the dataflow is no longer in the catalogue."""
        entry = self._entries[use.dataflow]
        if not entry.users[use.user]:
            raise ValueError(f"{use.user.kind} {use.user.name!r} does not use dataflow {use.dataflow!r}")
        entry.users[use.user] -= 1
        if not entry.users[use.user]:
            del entry.users[use.user]
        if entry.users:
            return False
        del self._entries[use.dataflow]
        self._failed.discard(use.dataflow)
        if self._maintainers.get(entry.arrangement.digest) == use.dataflow:
            del self._maintainers[entry.arrangement.digest]
        return True

    def mark_failed(self, dataflow: str) -> None:
        """Record that a dataflow has failed. The notification may arrive before `add`."""
        self._failed.add(dataflow)

    def has_failed(self, dataflow: str) -> bool:
        """Return whether a dataflow has failed."""
        return dataflow in self._failed

    def forget_failures(self) -> None:
        """Record that all dataflows are installed anew; those that fail again are marked again."""
        self._failed.clear()

    def dataflows(self) -> list[str]:
        """Return all dataflows, in the order in which they were added."""
        return list(self._entries)

    def arrangement(self, dataflow: str) -> ir.Node:
        """Return the arrangement that a dataflow maintains."""
        return self._entries[dataflow].arrangement

    def users_of(self, dataflow: str) -> list[User]:
        """Return the users of a dataflow, in the order of their first use."""
        return list(self._entries[dataflow].users)

    def owners_of(self, dataflow: str) -> list[User]:
        """Return the tables and views whose own rows a dataflow maintains."""
        return [user for user in self.users_of(dataflow) if user.is_owner]

    # Names.

    def new_dataflow_name(self, wanted: str) -> str:
        """Return a name that no dataflow has or ever had: the one that is wanted, or else a numbered variant.

        No number is used twice, so that numbered names need not be remembered. A wanted name that looks like a numbered
        one gets a number too.
        """
        if wanted in self._used or _NUMBERED.search(wanted):
            return f"{wanted} #{next(self._numbers)}"
        self._used.add(wanted)
        return wanted

    def check_name(self, name: str) -> None:
        """Raise if a name is taken."""
        if name in self._names:
            raise DataflowError(
                f"the name {name!r} is taken", hint="choose another name, or drop the table or view that has it"
            )

    def claim_name(self, name: str) -> None:
        """Take a name for a table, input or view; raise if it is taken."""
        self.check_name(name)
        self._names.add(name)

    def free_name(self, name: str) -> None:
        """Give back the name of a table, input or view."""
        self._names.discard(name)
