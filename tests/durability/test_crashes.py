"""Processes are killed at any instant, and at every point at which storage is changed: nothing is lost or repeated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ikebana.storage.faults import FaultPoint
from tests.durability.chaos import POINTS, S3_POINTS
from tests.durability.conftest import S3, Place
from tests.durability.crashes import Life, Witness, run, run_with_workers
from tests.profiles import PROFILE

KILLS = {"quick": 20, "thorough": 300, "soak": 1000}[PROFILE]
WORKER_KILLS = {"quick": 8, "thorough": 100, "soak": 300}[PROFILE]

S3_KILLS = {"quick": 4, "thorough": 60, "soak": 200}[PROFILE]
"""Fewer, since whoever comes next waits until the lease has expired."""


def test_oracle_processes_killed_at_any_instant(place: Path) -> None:
    kill_at_any_instant(place, KILLS)


@pytest.mark.thorough
@pytest.mark.parametrize("place", [S3], indirect=True)
def test_oracle_processes_killed_at_any_instant_on_an_object_store(place: Place) -> None:
    kill_at_any_instant(place, S3_KILLS)


def kill_at_any_instant(place: Place, kills: int) -> None:
    chance, witness = random.Random(1), Witness()
    while witness.kills < kills:
        life = Life(str(place), chance.randrange(1 << 30), chance.randint(1, 3), chance.randint(1, 3), 1000)
        run(life, witness, kill_after=chance.uniform(0, 0.25))
    run(Life(str(place), 0, transactions=0), witness)
    assert witness.transactions > kills


@pytest.mark.parametrize("point", POINTS)
def test_oracle_processes_killed_when_storage_changes(point: FaultPoint, place: Path) -> None:
    kill_when_storage_changes(point, place)


@pytest.mark.parametrize(
    "point", [S3_POINTS[0], *(pytest.param(point, marks=pytest.mark.thorough) for point in S3_POINTS[1:])]
)
@pytest.mark.parametrize("place", [S3], indirect=True)
def test_oracle_processes_killed_when_an_object_store_changes(point: FaultPoint, place: Place) -> None:
    kill_when_storage_changes(point, place)


def kill_when_storage_changes(point: FaultPoint, place: Place) -> None:
    chance, witness, was_reached = random.Random(point.value), Witness(), False
    for count in (1, 3):
        seed, workers = chance.randrange(1 << 30), chance.randint(1, 3)
        was_reached |= run(Life(str(place), seed, workers, fault=f"{point.value}:{count}"), witness)
    run(Life(str(place), 0, transactions=0), witness)
    assert was_reached


@pytest.mark.usefixtures("forked_workers")
def test_oracle_workers_killed_at_any_instant(place: Path) -> None:
    chance, witness = random.Random(2), Witness()
    for number in range(WORKER_KILLS):
        seed, heals = chance.randrange(1 << 30), number % 2 == 1
        run_with_workers(str(place), seed, chance.randint(1, 3), witness, chance.uniform(0.05, 0.3), heals)
    run(Life(str(place), 0, transactions=0), witness)
