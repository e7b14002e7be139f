"""What the driver and the processes of its workers say to each other, besides commands.

Starting: every worker says `Hello` to the driver, which tells all of them their `Peers`; each sends every peer a
`Greeting`, and is `Ready` when it has one from every peer. So a cluster that has started has all its connections.
On the way each learns with whom it shares memory, by tokens (`ikebana.cluster.shared_memory`).

Afterwards the driver sends commands and requests. A worker takes them in order. Each request has a number, and is
answered once: with an `Answer`, or with a `Refusal` that becomes an error in the driver. A worker keeps any number of
requests that it cannot answer yet, until it can or is told to `Forget` them. Guests ask in the same way, each with
numbers of its own; a command that a guest sends is answered when it was carried out.

A worker sends `News` unasked. One that cannot go on says why (`Crash`) before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.cluster.shared_memory import Address
from ikebana.errors import IkebanaError
from ikebana.runtime.messages import Command, Request

# From the driver, and `Ask` from guests too.


@dataclass(frozen=True, slots=True)
class PeerAddresses:
    """Where all workers listen, in order; where their ledgers are, and the tokens that the driver has read there."""

    endpoints: tuple[str, ...]
    ledgers: tuple[Address | None, ...]
    seen: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a request, as soon as that is possible."""

    number: int
    request: Request | Command  # commands: from clients only


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Nobody waits for the answer to a request any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Answer when there is nothing to do, with `Counts`."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process."""


# From a worker to the driver, and `Answer` and `Refusal` to guests too.


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker is there: where it listens for its peers and for guests, and which process it is.

    Also where its ledger is, and the token that it has read in the driver's.
    """

    endpoint: str
    door: str
    pid: int
    ledger: Address | None
    seen: bytes


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is connected with all its peers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request asked for."""

    number: int
    value: Any = None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many letters a worker has sent and received, and how many commands and requests it has taken."""

    sent: int
    received: int
    taken: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in place of an answer."""

    number: int
    kind: type[IkebanaError]
    what: str
    detail: str
    hint: str

    @staticmethod
    def of(number: int, error: IkebanaError) -> Refusal:
        """The refusal that carries an error."""
        return Refusal(number, type(error), error.what, error.detail, error.hint)

    def error(self) -> IkebanaError:
        """The error, to be raised."""
        return self.kind(self.what, detail=self.detail, hint=self.hint)


@dataclass(frozen=True, slots=True)
class Notification:
    """What the worker has for whoever listens, in order."""

    items: list[Any]


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker ends because of an exception outside of any dataflow."""

    reason: str
    trace: str


# From one worker to another.


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first thing on a connection: who it is, and the token that it has read in the receiver's ledger."""

    sender: int
    seen: bytes


FromDriver: TypeAlias = PeerAddresses | Ask | CancelRequest | Idle | Stop
FromWorker: TypeAlias = Hello | Ready | Answer | Counts | Refusal | Notification | Crash
Reply: TypeAlias = Answer | Refusal
