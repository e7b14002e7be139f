"""The seeded scheduler: it does wrong what it is asked to, always the same from one seed, and answers stay the same."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster.inprocess import NO_FAULTS, Faults, InProcess
from ikebana.engine import Engine
from ikebana.runtime.messages import DataflowMessage
from tests.dataflow.harness import examples, faults, pairs, pairs_input, read

COUNT = 20
SEEDS = range(10)


class Clerk:
    """A worker that takes some steps, sends a message to the last worker in each, and logs what it receives."""

    def __init__(self, index: int, last: int, log: list[Any]) -> None:
        self.index, self.last, self.log = index, last, log
        self.outbox, self.notifications = deque[Any](), deque[Any]()
        self.sent = 0

    def step(self) -> bool:
        if self.index == self.last or self.sent == COUNT:
            return False
        self.outbox.append((self.last, DataflowMessage("flow", 2, self.sent, self.index, None)))
        self.log.append(("sent", self.index, self.sent))
        self.sent += 1
        return True

    def deliver(self, message: DataflowMessage) -> None:
        self.log.append(("received", message.sender, message.number))


def _clerks(seed: int, wrong: Faults = NO_FAULTS) -> dict[str, list[tuple[int, int]]]:
    """The messages that two workers send to a third, as (sender, number), in the orders of sending and receiving."""
    cluster, log = InProcess(3, seed=seed, faults=wrong), list[Any]()
    cluster.workers = [Clerk(index, 2, log) for index in range(3)]  # type: ignore[misc]
    assert cluster.run_some(100_000), "it does not come to rest"
    return {kind: [entry[1:] for entry in log if entry[0] == kind] for kind in ("sent", "received")}


def _longest_run(messages: list[tuple[int, int]]) -> int:
    """The longest run of messages of one sender, while the other sender has messages left."""
    longest = run = 0
    for at, (sender, _) in enumerate(messages):
        run = run + 1 if at and messages[at - 1][0] == sender else 1
        longest = max(longest, run)
        if len({origin for origin, _ in messages[at + 1 :]}) < 2:
            return longest
    return longest


@pytest.mark.parametrize("wrong", [NO_FAULTS, Faults(delay=0.3, pause=0.3)], ids=["nothing", "delays and pauses"])
def test_letters_between_two_workers_keep_their_order(wrong: Faults) -> None:
    for seed in SEEDS:
        received = _clerks(seed, wrong)["received"]
        for clerk in (0, 1):
            assert [number for sender, number in received if sender == clerk] == list(range(COUNT))


def test_letters_overtake_each_other_if_they_may() -> None:
    orders = [_clerks(seed, Faults(reorder=1))["received"] for seed in SEEDS]
    assert all(sorted(order) == [(sender, n) for sender in (0, 1) for n in range(COUNT)] for order in orders)
    assert all([n for sender, n in order if sender == 0] != list(range(COUNT)) for order in orders)


@pytest.mark.parametrize(("kind", "wrong"), [("received", Faults(delay=0.1)), ("sent", Faults(pause=0.1))])
def test_what_is_held_back_lets_others_pass(kind: str, wrong: Faults) -> None:
    plain = sum(_longest_run(_clerks(seed)[kind]) for seed in SEEDS)
    assert sum(_longest_run(_clerks(seed, wrong)[kind]) for seed in SEEDS) > 1.5 * plain


def test_faults_that_nothing_survives_are_refused() -> None:
    for wrong in ({"delay": 1}, {"pause": 1.5}, {"longest": 0}):
        with pytest.raises(ValueError, match="nothing would ever happen"):
            Faults(**wrong)  # type: ignore[arg-type]


@examples(0.1)
@given(st.integers(0, 100), faults())
def test_the_same_seed_gives_the_same_run(seed: int, wrong: Faults) -> None:
    assert _clerks(seed, wrong) == _clerks(seed, wrong)


def _answers(cluster: InProcess) -> list[Any]:
    """What a count and a loop answer in four epochs."""
    engine = Engine(cluster=cluster)
    numbers = pairs_input(engine)
    both_ways = numbers.iterate(lambda x: x.concat(x.select(k="v", v="k")).distinct())
    views = [engine.install("counts", numbers.count("k")), engine.install("both ways", both_ways)]
    answers = []
    for epoch in range(4):
        numbers.insert(pairs(*((k, epoch) for k in range(4))))
        engine.advance()
        answers += [read(view) for view in views]
    return answers


@examples(0.1)
@given(st.integers(1, 3), st.integers(0, 100), faults())
def test_faults_change_no_answer(workers: int, seed: int, wrong: Faults) -> None:
    assert _answers(InProcess(workers, seed=seed, faults=wrong)) == _answers(InProcess())
