"""Enrolment: how workers whose configuration others may have read get keys that nobody else has.

Spark sends the configurations of workers to executors over its own channels, which are not encrypted by default. So
they contain no secret key. Each worker creates its own key pair, connects to the driver, whose public key it knows, and
sends the *token* of its configuration. The driver accepts each token once, takes the key with which the worker is
connected for the worker's key, and answers with the keys of all workers once it knows them. When the workers have
started, the socket for this is closed, and the tokens are worthless.

Whoever reads a token on the way could use it first. Then the worker itself comes too late, the driver notices that a
token was used twice, and the start fails. An impostor that is faster than the slowest worker is trusted until then;
docs/SECURITY.md says what prevents that.

All messages are JSON (`ikebana.cluster.plain`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

import zmq

from ikebana.cluster import codec
from ikebana.cluster.authentication import NEW_WORKERS, KeyPair, Socket, Sockets
from ikebana.cluster.launch import WorkerConfig
from ikebana.cluster.plain import UndecodableError, decode, encode
from ikebana.errors import DataflowError

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Enrol:
    """From a worker: its index, and its token."""

    worker: int
    token: str


@dataclass(frozen=True, slots=True)
class Enrolled:
    """From the driver: the public keys of all workers, in order."""

    worker_keys: tuple[str, ...]


class Enrolment:
    """The driver's side."""

    def __init__(self, sockets: Sockets, workers: int) -> None:
        self._sockets = sockets
        sockets.allow(NEW_WORKERS, None)
        self.socket, self.endpoint = sockets.listen(zmq.ROUTER, NEW_WORKERS)
        self.tokens = [secrets.token_hex(_TOKEN_BYTES) for _ in range(workers)]
        """The token of each worker."""
        self._enrolled: dict[int, tuple[bytes, bytes]] = {}  # the connection and the public key, by worker

    @property
    def is_complete(self) -> bool:
        """Whether all workers have enrolled."""
        return len(self._enrolled) == len(self.tokens)

    @property
    def missing(self) -> list[int]:
        """The workers that have not enrolled yet."""
        return [worker for worker in range(len(self.tokens)) if worker not in self._enrolled]

    def take_messages(self) -> None:
        """Enrol the workers whose messages have arrived; others are ignored. Raises if a token is used twice."""
        while codec.is_readable(self.socket):
            connection, first = self.socket.recv(), self.socket.recv(copy=False)
            key = str(first.get("User-Id")).encode()
            frames = codec.receive_frames(self.socket, first)
            try:
                message = decode(frames[0], Enrol)
            except UndecodableError:
                continue
            self._enrol(connection, key, message)

    def _enrol(self, connection: bytes, key: bytes, message: Enrol) -> None:
        worker = message.worker
        if not 0 <= worker < len(self.tokens) or not secrets.compare_digest(message.token, self.tokens[worker]):
            return
        if worker in self._enrolled and self._enrolled[worker][1] != key:
            raise DataflowError(
                f"two processes claim to be worker {worker}",
                detail="somebody has read the worker's token on its way from Spark's driver to an executor",
                hint="encrypt Spark's connections: spark.authenticate=true and spark.network.crypto.enabled=true",
            )
        self._enrolled[worker] = connection, key

    @property
    def worker_keys(self) -> list[bytes]:
        """The public keys of all workers, which have enrolled."""
        return [self._enrolled[worker][1] for worker in range(len(self.tokens))]

    def confirm(self) -> None:
        """Tell all workers the keys of all."""
        answer = encode(Enrolled(tuple(key.decode() for key in self.worker_keys)), Enrolled)
        for connection, _ in self._enrolled.values():
            codec.send(self.socket, [answer], to=connection)

    def close(self) -> None:
        """Stop listening. Raises if a token was used twice."""
        self.take_messages()
        self._sockets.allow(NEW_WORKERS, ())
        self.socket.unbind(self.socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0"))


def enrol(config: WorkerConfig) -> WorkerConfig:
    """In a worker process: create a key pair, and return the configuration with the keys of all workers."""
    keys = KeyPair.new()
    sockets = Sockets(keys, heartbeat=True)
    try:
        socket, lost = sockets.connect_watched(zmq.DEALER, config.enrolment, config.driver_key.encode())
        codec.send(socket, [encode(Enrol(config.index, config.token), Enrol)])
        answer = _receive_unless_lost(socket, lost)
        worker_keys = list(decode(answer, Enrolled).worker_keys)
        return replace(config, worker_keys=worker_keys, secret=keys.secret.decode(), token="")
    finally:
        sockets.close()


def _receive_unless_lost(socket: Socket, lost: Socket) -> bytes:
    poller = zmq.Poller()
    for readable in (socket, lost):
        poller.register(readable, zmq.POLLIN)
    if socket not in dict(poller.poll()):
        raise DataflowError("the driver has not accepted this worker")
    return bytes(codec.receive_frames(socket)[0])
