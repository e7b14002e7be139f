"""Workers whose configuration others may read create their own keys, and a token is good for one worker, once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest
import zmq

from ikebana.cluster import codec
from ikebana.cluster.authentication import KeyPair, Sockets
from ikebana.cluster.driver import Driver
from ikebana.cluster.enrolment import Enrol, Enrolled, Enrolment, enrol
from ikebana.cluster.launch import WorkerConfig
from ikebana.cluster.network import ListenAddress
from ikebana.cluster.plain import decode, encode
from ikebana.engine import Engine
from ikebana.errors import DataflowError
from tests.forked_workers import ForkedProcesses


class OpenConfigs(ForkedProcesses):
    """Starts workers with configurations that others can read: `seen` has them."""

    keeps_secrets = False

    def __init__(self, before: Callable[[Sequence[WorkerConfig]], Any] = lambda configs: None) -> None:
        super().__init__(sys.executable)
        self.seen: Sequence[WorkerConfig] = ()
        self._before = before

    def start(self, configs: Sequence[WorkerConfig]) -> None:
        self.seen = configs
        self._before(configs)
        super().start(configs)


def claim(config: WorkerConfig, token: str | None = None) -> tuple[Sockets, Any]:
    """Enrol with the token of a worker that somebody has read, under a key of one's own."""
    sockets = Sockets(KeyPair.new())
    socket = sockets.connect(zmq.DEALER, config.enrolment, config.driver_key.encode())
    codec.send(socket, [encode(Enrol(config.index, config.token if token is None else token), Enrol)])
    return sockets, socket


def test_workers_enrol_and_work() -> None:
    host = OpenConfigs()
    with Driver(host, 2) as cluster:
        engine = Engine(cluster=cluster)
        table = engine.table("t", {"k": pa.int64()}, key="k")
        table.insert({"k": range(100)})
        assert engine.install("v", table).to_arrow().num_rows == 100
        for config in host.seen:
            assert not config.secret and not config.worker_keys
            assert "secret" not in {name for name, value in asdict(config).items() if value}
            late, socket = claim(config)  # the tokens are useless now
            assert not socket.poll(200)
            late.close()
        assert engine.install("v2", table).to_arrow().num_rows == 100


def test_a_token_that_is_used_twice_ends_the_start() -> None:
    claims: list[tuple[Sockets, Any]] = []
    host = OpenConfigs(before=lambda configs: claims.append(claim(configs[1])))
    with pytest.raises(DataflowError, match=r"two processes claim to be worker 1(.|\n)*spark\.network\.crypto"):
        Driver(host, 2)
    for sockets, _ in claims:
        sockets.close()


def test_other_tokens_and_messages_are_ignored() -> None:
    keys = KeyPair.new()
    sockets = Sockets(keys, ListenAddress("127.0.0.1"))
    enrolment = Enrolment(sockets, 2)
    config = WorkerConfig(
        index=0, workers=2, effort="default", host="127.0.0.1", driver="", driver_key=keys.public.decode(),
        enrolment=enrolment.endpoint, token=enrolment.tokens[0],
    )  # fmt: skip
    wrong = [claim(config, token="0" * 64), claim(replace(config, index=7)), claim(replace(config, index=1))]
    garbage = Sockets(KeyPair.new())
    codec.send(garbage.connect(zmq.DEALER, enrolment.endpoint, keys.public), [b"\x80pickle", b"more"])
    first, second = claim(config), claim(replace(config, index=1, token=enrolment.tokens[1]))
    while not enrolment.is_complete:
        assert enrolment.socket.poll(5000)
        enrolment.take_messages()
    assert enrolment.worker_keys == [claimant[0]._keys.public for claimant in (first, second)]
    enrolment.confirm()
    for _, socket in (first, second):
        assert decode(codec.receive_frames(socket)[0], Enrolled).worker_keys == tuple(
            key.decode() for key in enrolment.worker_keys
        )
    enrolment.close()
    for opened in (*(sockets for sockets, _ in (*wrong, first, second)), garbage, sockets):
        opened.close()


def test_a_worker_does_not_enrol_with_another_driver() -> None:
    real, impostor = KeyPair.new(), Sockets(KeyPair.new(), ListenAddress("127.0.0.1"))
    enrolment = Enrolment(impostor, 1)
    config = WorkerConfig(
        index=0, workers=1, effort="default", host="127.0.0.1", driver="", driver_key=real.public.decode(),
        enrolment=enrolment.endpoint, token=enrolment.tokens[0],
    )  # fmt: skip
    with pytest.raises(DataflowError, match="not accepted this worker"):
        enrol(config)
    enrolment.take_messages()
    assert enrolment.missing == [0]
    impostor.close()
