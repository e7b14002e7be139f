"""The protocol between the driver, its worker processes and clients, besides the commands themselves.

Start. Every worker sends `WorkerHello` to the driver, which sends all workers their `PeerAddresses`. Each worker then
sends a `Greeting` to every peer, and `Ready` to the driver once it has received one from every peer. So when a cluster
has started, all its connections exist. On the way, the processes find out which of them share memory, by exchanging
tokens (`ikebana.cluster.shared_memory`), and tell each other the addresses of their pipes (`ikebana.cluster.pipes`).

Afterwards the driver sends commands and requests, which a worker takes in order. Each request has a number and gets one
reply: an `Response`, or a `Refusal` that is raised as an error in the driver. A worker keeps requests that it cannot
answer yet until it can, or until they are cancelled (`CancelRequest`). Replies are sent to the driver as lists. Clients
have a protocol of their own (`ikebana.cluster.client_protocol`); the driver tells the workers what the key of each
client may do (`SetGrant`).

A worker sends a `Notification` without having been asked. If it crashes, it sends the reason (`Crash`) before it exits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.cluster.pipes import PipeAddress
from ikebana.cluster.shared_memory import Address
from ikebana.errors import IkebanaError

# From the driver; `Ask` and `CancelRequest` also from clients, with other requests.


@dataclass(frozen=True, slots=True)
class PeerAddresses:
    """The endpoints of all workers, in order, their control blocks, the tokens that the driver has read there, and the
    address of the driver's pipe."""

    endpoints: tuple[str, ...]
    control_blocks: tuple[Address | None, ...]
    tokens: tuple[bytes, ...]
    pipe: PipeAddress | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a request, as soon as possible."""

    number: int
    request: Any  # a `Request`; of clients, a `ClientRequest`


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The answer to a request is not needed any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What the holder of a client's key may do, and for how many seconds from the receipt of this message on.

    It may stage rows in these transactions, for these tables; read what these holds hold, of these dataflows; and ask
    the driver, where `server` is the recipient of its questions.
    """

    seconds: float
    stages: tuple[tuple[int, str], ...] = ()
    holds: tuple[tuple[int, str], ...] = ()
    server: int | None = None


@dataclass(frozen=True, slots=True)
class SetGrant:
    """Allow a client's key what the grant says, instead of what it was allowed before; None for nothing. Answered."""

    number: int
    key: bytes
    grant: Grant | None


@dataclass(frozen=True, slots=True)
class Idle:
    """Answer with `Counts`, as soon as the worker has nothing to do."""

    number: int


@dataclass(frozen=True, slots=True)
class StopProcess:
    """End the process."""


# From a worker to the driver; `Response` and `Refusal` also to clients.


@dataclass(frozen=True, slots=True)
class WorkerHello:
    """The worker has started. Its endpoints for peers and for clients, and its process id.

    Also the addresses of its control block and of its pipe, and the token that it has read in the driver's block.
    """

    endpoint: str
    client_endpoint: str
    pid: int
    control_block: Address | None
    token: bytes
    pipe: PipeAddress | None


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is connected to all its peers."""


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request."""

    number: int
    value: Any = None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many peer messages a worker has sent and received, and how many commands and requests it has taken."""

    sent: int
    received: int
    taken: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error instead of an answer."""

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
        """The error to raise."""
        return self.kind(self.what, detail=self.detail, hint=self.hint)


@dataclass(frozen=True, slots=True)
class Notification:
    """Items for the driver's listener, in order."""

    items: list[Any]


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker exits because of an exception outside of any dataflow."""

    reason: str
    trace: str


# From one worker to another.


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message on a connection: the sender, the token that it has read in the receiver's control block, and
    the address of the sender's pipe."""

    sender: int
    token: bytes
    pipe: PipeAddress | None


FromDriver: TypeAlias = PeerAddresses | Ask | CancelRequest | SetGrant | Idle | StopProcess
FromWorker: TypeAlias = WorkerHello | Ready | Response | Counts | Refusal | Notification | Crash
Reply: TypeAlias = Response | Refusal
