"""What the driver and the processes of its workers say to each other, besides commands.

Starting: every worker says `Hello` to the driver, which tells all of them their `Peers`; each sends every peer a
`Greeting`, and is `Ready` when it has one from every peer. So a cluster that has started has all its connections.

Afterwards the driver sends commands and requests. A worker takes them in order. Each request has a number, and is
answered once by every worker: with an `Answer`, or with a `Refusal` that becomes an error in the driver. A worker
remembers one `Wait` and one `Idle` at a time: a new one replaces one that the driver no longer waits for.

A worker that cannot go on says why (`Crash`) before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.errors import IkebanaError
from ikebana.time import Time

# From the driver.


@dataclass(frozen=True, slots=True)
class Peers:
    """Where all workers listen, in order."""

    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Answer when a dataflow has completed the epochs before `epoch`; refuse when it has failed."""

    number: int
    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """Answer with this worker's shard of a dataflow's result."""

    number: int
    dataflow: str
    at: Time


@dataclass(frozen=True, slots=True)
class Idle:
    """Answer when there is nothing to do, with the numbers of letters (sent, received) so far."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process."""


# From a worker to the driver.


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker is there, and listens for its peers."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is connected with all its peers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request asked for."""

    number: int
    value: Any = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in place of an answer."""

    number: int
    kind: type[IkebanaError]
    what: str
    detail: str
    hint: str

    def error(self) -> IkebanaError:
        """The error, to be raised."""
        return self.kind(self.what, detail=self.detail, hint=self.hint)


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker ends because of an exception outside of any dataflow."""

    reason: str
    trace: str


# From one worker to another.


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first thing on a connection."""

    sender: int


FromDriver: TypeAlias = Peers | Wait | Read | Idle | Stop
FromWorker: TypeAlias = Hello | Ready | Answer | Refusal | Crash
Reply: TypeAlias = Answer | Refusal
