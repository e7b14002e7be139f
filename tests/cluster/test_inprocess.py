"""Requests to workers in one process are answered as between processes."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest

from ikebana.cluster.inprocess import InProcess
from ikebana.engine import Engine
from ikebana.errors import DataflowError
from ikebana.runtime.messages import Demand, Ping, Read, Wait
from tests.dataflow.harness import pairs_input


@pytest.fixture
def engine() -> Engine:
    engine = Engine(cluster=InProcess(3))
    numbers = engine.input("numbers", {"n": pa.int64()})
    engine.install("counts", numbers.count("n"))
    numbers.insert({"n": list(range(30))})
    engine.advance()
    engine.cluster.command(Demand("counts", 1))
    return engine


def test_all_answer_or_one(engine: Engine) -> None:
    assert engine.cluster.ask(Wait("counts", 1)) == [None, None, None]
    shards = engine.cluster.ask(Read("counts", (0,)))
    assert sum(shard.rows.num_rows for shard in shards) == 30
    for worker, shard in enumerate(shards):
        assert engine.cluster.ask(Read("counts", (0,)), worker) == [shard]


def test_a_request_comes_after_the_commands_before_it(engine: Engine) -> None:
    assert engine.cluster.ask(Ping("counts"), 2) == [None]  # its install command was sent, but not yet carried out


def test_a_ping_is_answered_unless_the_dataflow_has_failed(engine: Engine) -> None:
    assert engine.cluster.ask(Ping("counts")) == [None, None, None]
    assert engine.cluster.ask(Ping("counts"), 1) == [None]
    with patch.object(engine, "_check_sources"):  # so that only the workers notice
        engine.install("broken", pairs_input(Engine(), "strange"))
    with pytest.raises(DataflowError, match="'broken' has failed"):
        engine.cluster.ask(Ping("broken"))
    with pytest.raises(DataflowError, match="no dataflow 'nowhere'"):
        engine.cluster.ask(Ping("nowhere"))


def test_what_has_no_answer(engine: Engine) -> None:
    with pytest.raises(DataflowError, match="cannot complete epoch 6"):
        engine.cluster.ask(Wait("counts", 7))
    with pytest.raises(DataflowError, match="no dataflow 'nowhere'"):
        engine.cluster.ask(Read("nowhere", (0,)))
    with pytest.raises(DataflowError, match="does not know the request 'what'"):
        engine.cluster.ask("what")
