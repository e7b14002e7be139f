"""Keys of clients: each is for one job, allows only what the job needs, and only for a limited time.

The driver creates a key pair for a job (`IssuedKeys.issue`), tells all workers what it allows (`Grant`), and hands the
credentials to the job's tasks. A grant can be replaced, for instance when it turns out which snapshot a job reads, and
revoked when the job has ended; it expires in any case.

Workers check every message of a client against the grant of the key with which the client is connected (`KnownKeys`).
ZeroMQ proves that a client has its key, and tells which key it is. A connection that exists when its key expires or is
revoked stays, but all its requests are refused.

Cost: issuing a key takes a request to all workers and back; a check is a look-up in a dict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from ikebana.cluster.authentication import KeyPair
from ikebana.cluster.client_protocol import ClientHello, ClientQuestion, ClientRequest
from ikebana.cluster.connections import WorkerConnections
from ikebana.cluster.network import host_of
from ikebana.cluster.protocol import Grant, SetGrant
from ikebana.errors import DataflowError
from ikebana.runtime.messages import Read, ReadChanges, ReadErrors, Stage


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client needs in order to connect to a cluster, for one job."""

    endpoints: tuple[str, ...]  # of each worker, for clients
    worker_keys: tuple[bytes, ...]  # the public key of each worker
    keys: KeyPair = field(repr=False)  # the key pair of the job

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.endpoints)

    def host(self, worker: int) -> str:
        """The host on which a worker runs."""
        return host_of(self.endpoints[worker])


# The driver's side.


Purpose: TypeAlias = tuple[str, str]
"""What a key is for, in terms of the code that answers questions: for instance, to read a table."""


@dataclass(frozen=True, slots=True)
class _Issued:
    grant: Grant
    purpose: Purpose
    expires: float


class IssuedKeys:
    """The keys that a driver has issued, and what they allow. Any thread may use this."""

    def __init__(
        self,
        connections: WorkerConnections,
        endpoints: Iterable[str],
        worker_keys: Iterable[bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections, self._endpoints, self._worker_keys = connections, tuple(endpoints), tuple(worker_keys)
        self._clock = clock
        self._issued: dict[bytes, _Issued] = {}  # by public key
        self._lock = threading.Lock()

    def issue(self, grant: Grant, purpose: Purpose = ("", "")) -> ClientCredentials:
        """Create a key for a job; it can be used at once."""
        keys = KeyPair.new()
        self._set(keys.public, grant, purpose)
        return ClientCredentials(self._endpoints, self._worker_keys, keys)

    def purpose(self, key: bytes) -> Purpose | None:
        """What a key was issued for; None if it is not valid."""
        with self._lock:
            issued = self._issued.get(key)
        return None if issued is None or issued.expires <= self._clock() else issued.purpose

    def renew(self, key: bytes, change: Callable[[Grant], Grant]) -> None:
        """Let the time of a key begin again, with a changed grant; does nothing if the key is not valid.

        If nothing changes, workers are told only when half of the time is over.
        """
        with self._lock:
            issued = self._issued.get(key)
        if issued is None:
            return
        grant = change(issued.grant)
        if grant != issued.grant or issued.expires - self._clock() < grant.seconds / 2:
            self._set(key, grant, issued.purpose)

    def revoke(self, key: bytes) -> None:
        """Make a key useless."""
        with self._lock:
            issued = self._issued.pop(key, None)
        if issued is not None:
            self._send(key, None)

    def _set(self, key: bytes, grant: Grant, purpose: Purpose) -> None:
        now = self._clock()
        with self._lock:
            self._issued = {other: issued for other, issued in self._issued.items() if issued.expires > now}
            self._issued[key] = _Issued(grant, purpose, now + grant.seconds)
        self._send(key, grant)

    def _send(self, key: bytes, grant: Grant | None) -> None:
        """Tell all workers, and wait until they know."""
        with self._connections.call(partial(SetGrant, key=key, grant=grant)) as call:
            call.wait()
            call.result()


def allow_hold(grant: Grant, hold: int, dataflow: str) -> Grant:
    """A grant that also allows to read what is held; of older holds, only the last ones."""
    if (hold, dataflow) in grant.holds:
        return grant
    return replace(grant, holds=(*grant.holds[1 - _MAX_HOLDS :], (hold, dataflow)))


def allow_stage(grant: Grant, transaction: int, table: str) -> Grant:
    """A grant that also allows to stage rows for a table."""
    pair = transaction, table
    return grant if pair in grant.stages else replace(grant, stages=(*grant.stages, pair))


_MAX_HOLDS = 64
"""How many holds a key allows to read: as many queries over a DataFrame can run at once."""


# The workers' side.


class KnownKeys:
    """The keys of clients that a worker knows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._grants: dict[bytes, tuple[Grant, float]] = {}

    def set(self, key: bytes, grant: Grant | None) -> list[bytes]:
        """Take over a grant, or its end. Return the keys that may connect."""
        now = self._clock()
        self._grants = {other: known for other, known in self._grants.items() if known[1] > now and other != key}
        if grant is not None:
            self._grants[key] = grant, now + grant.seconds
        return list(self._grants)

    def check(self, key: bytes, request: ClientRequest) -> int:
        """Raise unless a key allows a request. Return the recipient of its questions."""
        grant, expires = self._grants.get(key, (None, 0.0))
        if grant is None or expires <= self._clock():
            raise DataflowError(
                "the key of this job is no longer valid",
                detail="the job has ended, or the key has expired",
                hint="run the job again, or create the DataFrame again",
            )
        match request:
            case ClientHello():
                allowed = True
            case Stage():
                allowed = (request.transaction, request.table) in grant.stages
            case Read() | ReadErrors() | ReadChanges():
                allowed = (request.hold, request.dataflow) in grant.holds
            case ClientQuestion():
                allowed = grant.server is not None
        if not allowed:
            raise DataflowError(
                f"the key of this job does not allow {_DESCRIPTIONS[type(request)]}",
                detail="a key is for one job: for its transaction and table, or for the snapshot that it reads",
            )
        return -1 if grant.server is None else grant.server


_DESCRIPTIONS = {
    Stage: "staging these rows",
    Read: "reading these rows",
    ReadErrors: "reading these errors",
    ReadChanges: "reading these changes",
    ClientQuestion: "asking the driver",
}
