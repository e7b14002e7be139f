"""Kill engines until one loses something: `make chaos`, or python -m tests.durability.chaos --kills 1000.

What is killed, and when, follows from the seed as far as a program can decide that. Every kill is followed by a
recovery that is checked (`tests.durability.crashes`). Some kills are at random instants, of an engine or of one of its
worker processes; the others are at fault points of storage, each of which is reached at least once. Now and then the
disk is full for a while before.

With --s3 the storage is an object store (`tests.storage.s3_server`), which takes longer: whoever opens it after a kill
waits until the lease of the process that was killed has expired.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from ikebana.cluster import processes
from ikebana.storage.faults import FaultPoint
from tests.durability.conftest import IN_MEMORY
from tests.durability.crashes import Life, Witness, run, run_with_workers
from tests.forked_workers import ForkedProcesses, fork_server
from tests.storage.s3_server import S3Server
from tests.storage.short_leases import short_leases

REPORT_SECONDS = 5.0
S3_POINTS = [FaultPoint.PUT, FaultPoint.PUT_HALF, FaultPoint.DELETE, FaultPoint.MAKE_DIRECTORY]
"""The fault points of object stores."""

POINTS = [point for point in FaultPoint if point not in (FaultPoint.PUT, FaultPoint.PUT_HALF)]
"""The fault points of disks."""


@dataclass(frozen=True)
class Target:
    """A storage directory, the fault points there, and how long an engine lives before it is killed at any instant."""

    place: str
    points: Sequence[FaultPoint]
    most_seconds: float


MOST_TIMES = {FaultPoint.MAKE_DIRECTORY: 4, FaultPoint.RESERVE: 5, FaultPoint.TRUNCATE: 3}
MOST_TIMES |= {FaultPoint.APPEND: 40, FaultPoint.APPEND_HALF: 40, FaultPoint.SYNC: 60, FaultPoint.SYNC_DIRECTORY: 20}
"""How often an engine reaches a point before it is killed there, at most, if not `MOST_OFTEN`."""

MOST_OFTEN = 10

FULL_POINTS = [FaultPoint.RESERVE, FaultPoint.CREATE, FaultPoint.WRITE, FaultPoint.MAKE_DIRECTORY]
"""Points at which a disk can be full."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats the same choices")
    parser.add_argument("--s3", action="store_true", help="store on an object store")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    fork_server()
    with patch.object(processes, "ChildProcesses", ForkedProcesses), ExitStack() as stack:
        if arguments.s3:
            stack.enter_context(short_leases())
            target = Target(stack.enter_context(S3Server()).new_uri(), S3_POINTS, 1.0)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=IN_MEMORY))
            target = Target(str(Path(folder) / "store"), POINTS, 0.15)
        kill_all(target, random.Random(arguments.seed), arguments.kills)


def kill_all(target: Target, chance: random.Random, kills: int) -> None:
    """Kill as many processes, and at every fault point at least one; then check what is there."""
    witness, reported = Witness(), time.monotonic()
    while witness.kills < kills:
        run_one(target, chance, witness)
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            print(progress(witness), flush=True)
    for point in target.points:
        while not witness.reached[point.value]:
            run(Life(target.place, chance.randrange(1 << 30), fault=f"{point.value}:1"), witness)
    run(Life(target.place, 0, transactions=0), witness)
    print(f"survived {progress(witness)}, and all are there")
    print(
        "kills at fault points: "
        + ", ".join(f"{point.value} {witness.reached[point.value]}" for point in target.points)
    )


def progress(witness: Witness) -> str:
    done = [f"{witness.transactions} transactions", f"{witness.batches} micro-batches", f"{witness.view_changes} views"]
    done.append(f"{witness.audit.epochs} epochs of a subscription")
    return f"{witness.kills} kills; acknowledged: {', '.join(done)}"


def run_one(target: Target, chance: random.Random, witness: Witness) -> None:
    """Let one engine live, and kill it, or one of its workers, at a random instant or at a random fault point."""
    seed, workers, threads = chance.randrange(1 << 30), chance.randint(1, 3), chance.randint(1, 4)
    snapshot_bytes = chance.choice([2_000, 20_000, 200_000])
    full = f"{chance.choice(FULL_POINTS).value}:{chance.randint(1, 20)}" if chance.random() < 0.1 else ""
    kind = chance.random()
    if kind < 0.1:
        run_with_workers(
            target.place, seed, workers, witness, chance.uniform(0, target.most_seconds), heals=kind < 0.05
        )
    elif kind < 0.5:
        life = Life(target.place, seed, workers, threads, 1 << 30, full=full, snapshot_bytes=snapshot_bytes)
        run(life, witness, kill_after=chance.uniform(0, target.most_seconds))
    else:
        point = chance.choice(target.points)
        fault = f"{point.value}:{chance.randint(1, MOST_TIMES.get(point, MOST_OFTEN))}"
        run(Life(target.place, seed, workers, threads, 30, fault, full, snapshot_bytes), witness)


if __name__ == "__main__":
    main()
