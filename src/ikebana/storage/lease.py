"""Leases: one driver at a time uses a storage directory, and its workers notice when another has taken over.

A driver *claims* a new incarnation by writing a file that says who it is. From then on the workers and the driver of
earlier incarnations are fenced off: a `Fence` raises before they sync, publish or delete anything. What they write
nevertheless, because they had asked just before, is ignored: the new incarnation has noted up to where it has read
their logs, and which of their manifests. What they delete nevertheless is not needed: before a deletion they always
look for claims, after they have published what makes the files unnecessary, so a later incarnation has read that too.

On a local disk the driver holds a lock, and so does every worker (`ikebana.storage.locks`). The system releases a lock
when its process ends, so a storage directory can be opened at once after any death, and never while a process lives.

On other filesystems the driver renews a heartbeat. Another driver watches it, and takes over when it has not changed
for `LEASE_SECONDS`, or at once if the lease was released. A driver that could not renew its heartbeat in
time stops acknowledging before that: `Lease.check` raises. This is correct if the clocks of both machines
run at about the same rate; they need not agree. Times count during which a machine was suspended.

No filesystem is asked to create a file only if there is none, which Arrow cannot do. Whoever reads after a write must
see it, as on all object stores of today; how long a write takes does not matter. So whoever wants the lease writes
first, and then looks whether somebody else has written:

- Of two drivers that claim one incarnation, each sees the other's claim after `SETTLING_SECONDS`, usually; the one that
  renews its heartbeat already wins, or else the smaller random number. Each looks once more after its first heartbeat.
- A driver looks for later claims after each heartbeat, so one that was slow goes on only if there is none by then. One
  that claims goes on only if the heartbeat that it has watched has not changed after its claim.

If both have written before either has looked, both give way, and nothing is lost.

Not guaranteed: anything if no clock of a machine goes on while it stands still, as of a virtual machine that is paused.
Until its next heartbeat, such a driver may acknowledge what the new session has not read.

Cost: `check` takes 0.2 us. A fence is checked at every sync on a local disk (2 us), and every two seconds elsewhere;
before files are deleted, claims are listed.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from ikebana.errors import FencedError, StorageError, StorageInUseError
from ikebana.storage.directory import Directory, LocalDirectory
from ikebana.storage.files import TORN, read_json, write_json
from ikebana.storage.layout import CLAIMS, HEARTBEATS, INCARNATIONS, LOCK_FILE
from ikebana.storage.locks import LockFile

LEASE_SECONDS = 15.0
SETTLING_SECONDS = 1.0

_RENEWALS = 5
"""How often a heartbeat is renewed in the time of a lease."""

_SAFE_SHARE = 0.6
"""After this share of the time of a lease without a renewal, its owner stops acknowledging."""

_FENCE_SECONDS = 2.0
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine is suspended: on Linux `time.monotonic` stops, on macOS this one does not."""

_CLOCK_TICK_NS = 100_000_000
"""Two changes of a directory that are closer than this may have the same time."""

_CLAIM = re.compile(rf"{CLAIMS}/(\d+)-([0-9a-f]+)\.json")


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has started an incarnation."""

    incarnation: int
    nonce: str
    owner: str
    user: str
    host: str
    process: int
    since_us: int

    @staticmethod
    def new(incarnation: int, owner: str) -> Claim:
        """A claim of this process."""
        now = time.time_ns() // 1000
        return Claim(incarnation, secrets.token_hex(4), owner, _user(), socket.gethostname(), os.getpid(), now)

    @property
    def path(self) -> str:
        return f"{CLAIMS}/{self.incarnation:06d}-{self.nonce}.json"

    @property
    def heartbeat_path(self) -> str:
        return f"{HEARTBEATS}/{self.incarnation:06d}-{self.nonce}.json"

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since_us / 1e6))
        owner = f"{self.owner}, " if self.owner else ""
        return f"{owner}process {self.process} of user {self.user} on {self.host}, since {since}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return str(os.getuid())


def read_claims(directory: Directory) -> list[Claim]:
    """All claims, in order; what is said in those that were not written completely is unknown."""
    claims = []
    for entry in directory.files(CLAIMS):
        match = _CLAIM.fullmatch(entry.path)
        if match:
            fields = read_json(directory, entry.path, "who has used the storage directory")
            unknown = {"owner": "", "user": "?", "host": "?", "process": 0, "since_us": 0}
            known = unknown if fields is TORN else fields
            claims.append(Claim(**{**known, "incarnation": int(match[1]), "nonce": match[2]}))
    return claims


def _newest_incarnation(directory: Directory) -> int:
    """The newest incarnation that was claimed; 0 if there is none."""
    matches = (_CLAIM.fullmatch(entry.path) for entry in directory.files(CLAIMS))
    return max((int(match[1]) for match in matches if match), default=0)


def is_in_use(directory: Directory) -> bool | None:
    """Whether a driver uses a storage directory now; None if that cannot be known at once."""
    path = _lock_path(directory)
    if path is None:
        beats = (_read_heartbeat(directory, claim) for claim in _newest(read_claims(directory)))
        return None if any(beat != "released" for beat in beats) else False
    if not os.path.exists(path):
        return False
    try:
        file = LockFile(path)
    except OSError:  # of another user
        return None
    try:
        return file.driver() is not None
    finally:
        file.close()


def lock_file(directory: Directory) -> LockFile | None:
    """The lock file of a storage directory that exists; None if its filesystem has no locks."""
    path = _lock_path(directory)
    return None if path is None else LockFile(path)


def _lock_path(directory: Directory) -> str | None:
    return directory.full(LOCK_FILE) if isinstance(directory, LocalDirectory) and directory.can_lock else None


def _now() -> float:
    """The seconds of the clock by which leases expire."""
    return time.clock_gettime(_CLOCK)


# The driver's side.


class Lease:
    """The right to write to a storage directory."""

    def __init__(self, directory: Directory, owner: str) -> None:
        """Acquire the lease; raise if another driver is alive. Nothing is claimed yet."""
        self._directory, self._owner, self._seconds = directory, owner, LEASE_SECONDS
        self.claim: Claim | None = None
        self._is_released = False
        self._seen: list[Claim] | None = None  # the newest claims, where there are no locks
        self._seen_beats: list[Any] = []  # their heartbeats, if they are of other drivers
        self._lock_file: LockFile | None = None
        self._heartbeat: _Heartbeat | None = None
        if isinstance(directory, LocalDirectory) and directory.can_lock:
            directory.create_root()
            self._take_lock(directory.full(LOCK_FILE))
        elif not directory.can_append:
            self._wait_until_stale()

    def _take_lock(self, path: str) -> None:
        try:
            self._lock_file = LockFile(path)
        except OSError as error:
            raise StorageError(f"cannot open the storage directory {self._directory.uri}", detail=str(error)) from error
        if not self._lock_file.lock_driver():
            self._lock_file.close()
            claims = read_claims(self._directory)
            raise self._in_use(str(claims[-1]) if claims else "another process that is just starting")

    def _wait_until_stale(self) -> None:
        """Return once the heartbeats of the newest incarnation have not changed for the time of a lease."""
        self._seen = newest = _newest(read_claims(self._directory))
        beats, deadline = self._beats(newest), time.monotonic() + self._seconds
        while any(beat != "released" for beat in beats) and time.monotonic() < deadline:
            time.sleep(min(1.0, self._seconds / _RENEWALS))
            if self._beats(newest) != beats:
                raise self._in_use(str(newest[-1]))
        self._seen_beats = beats

    def _beats(self, claims: list[Claim]) -> list[Any]:
        return [_read_heartbeat(self._directory, claim) for claim in claims]

    def _in_use(self, who: str) -> StorageInUseError:
        return StorageInUseError(
            f"the storage directory {self._directory.uri} is in use",
            detail=f"by {who}",
            hint="close that session, or use another directory",
        )

    def start(self, wait: float) -> int:
        """Claim a new incarnation, and wait until the workers of earlier ones have ended; return its number."""
        newest = _newest(read_claims(self._directory))
        if self._seen is not None and newest != self._seen:
            raise self._in_use(str(newest[-1]))
        claim = Claim.new(1 + (newest[-1].incarnation if newest else 0), self._owner)
        write_json(self._directory, claim.path, claim.to_json())
        if self._lock_file is not None:
            if not self._lock_file.wait_for_workers(wait):
                raise StorageInUseError(
                    f"workers of an earlier session still use the storage directory {self._directory.uri}",
                    detail=f"process {self._lock_file.worker()} has not ended within {wait:g} s",
                    hint="wait for it, or end it, and connect again",
                )
        elif not self._directory.can_append:
            self._settle(claim)
        self.claim = claim
        return claim.incarnation

    def _settle(self, claim: Claim) -> None:
        """Give way if another driver has claimed the same incarnation; otherwise renew the heartbeat from now on."""
        time.sleep(min(SETTLING_SECONDS, self._seconds / _RENEWALS))
        self._give_way(claim)
        if self._heartbeat is not None:
            self._heartbeat.release()
        self._heartbeat = _Heartbeat(self._directory, claim, self._seconds)
        try:
            self._give_way(claim)
        except BaseException:
            self._heartbeat.stop()
            raise
        self._seen, self._seen_beats = [claim], []

    def _give_way(self, claim: Claim) -> None:
        """Withdraw a claim, and raise, if another driver has a better right."""
        newest, before = _newest(read_claims(self._directory)), self._seen or []
        beats = self._beats(newest)
        others = [other for other, beat in zip(newest, beats, strict=True) if _precedes(other, beat, claim)]
        if self._seen_beats and self._beats(before) != self._seen_beats:
            others += before
        if others:
            self._directory.delete(claim.path)
            raise self._in_use(str(others[0]))

    def check(self) -> None:
        """Raise if this driver may not acknowledge anything any more."""
        if self._is_released:
            raise FencedError(f"the storage directory {self._directory.uri} is closed")
        if self._heartbeat is not None:
            self._heartbeat.check()

    def release(self) -> None:
        """Let others use the storage directory."""
        self._is_released = True
        if self._heartbeat is not None:
            self._heartbeat.release()
        if self._lock_file is not None:
            self._lock_file.close()


def _newest(claims: list[Claim]) -> list[Claim]:
    """The claims of the newest incarnation: one, unless several drivers have claimed it at the same time."""
    return [claim for claim in claims if claim.incarnation == claims[-1].incarnation]


def _precedes(other: Claim, beat: Any, claim: Claim) -> bool:
    """Whether another claim, with its heartbeat, has a better right than a claim of the same incarnation."""
    if other.incarnation > claim.incarnation:
        return True
    return other != claim and (beat is not None or other.nonce < claim.nonce)


def _read_heartbeat(directory: Directory, claim: Claim) -> Any:
    if directory.size(claim.heartbeat_path) is None:
        return None
    return read_json(directory, claim.heartbeat_path, "whether a session is alive")


class _Heartbeat:
    """Renews the heartbeat of a claim from a thread."""

    def __init__(self, directory: Directory, claim: Claim, seconds: float) -> None:
        self._directory, self._claim, self._seconds = directory, claim, seconds
        self._count, self._is_lost = 0, False
        self._stopped = threading.Event()
        self._renewed = _now()
        self._renew()
        self._thread = threading.Thread(target=self._run, name="ikebana-storage-lease", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        interval = self._seconds / _RENEWALS
        while not self._stopped.wait(max(0.0, self._renewed + interval - _now())) and not self._is_lost:
            try:
                self._renew()
            except (StorageError, OSError):  # `check` raises if this lasts
                self._stopped.wait(interval)

    def _renew(self) -> None:
        started = _now()
        self._count += 1
        write_json(self._directory, self._claim.heartbeat_path, self._count)
        if _newest_incarnation(self._directory) > self._claim.incarnation:  # somebody has waited long enough
            self._is_lost = True
        self._renewed = started

    @property
    def _is_late(self) -> bool:
        return _now() - self._renewed > _SAFE_SHARE * self._seconds

    def check(self) -> None:
        if self._is_late or self._is_lost:
            raise FencedError(
                f"the lease of the storage directory {self._directory.uri} has expired",
                detail="it could not be renewed in time, and another session may have taken over",
                hint="connect again: everything that was acknowledged is stored",
            )

    def stop(self) -> None:
        """Renew it no more; others take over once they have waited for the time of a lease."""
        self._stopped.set()
        self._thread.join()

    def release(self) -> None:
        """Stop, and let others take over at once."""
        self.stop()
        write_json(self._directory, self._claim.heartbeat_path, "released")


# The workers' side.


class Fence:
    """Raises if a later incarnation than one's own was claimed."""

    def __init__(self, directory: Directory, incarnation: int) -> None:
        self._directory, self._incarnation = directory, incarnation
        self._is_local = isinstance(directory, LocalDirectory) and directory.can_lock
        self._seen: float | None = None  # the time of the last change of the directory of claims, or of the last check

    def check(self) -> None:
        """Raise if this incarnation is over. Where there are no locks, that may be noticed two seconds late."""
        if self._is_local:
            changed = self._changed()
            if changed == self._seen:
                return
        else:
            changed = _now()
            if self._seen is not None and changed - self._seen < _FENCE_SECONDS:
                return
        self.check_now()
        if not self._is_local or time.time_ns() - changed > _CLOCK_TICK_NS:
            self._seen = changed

    def check_now(self) -> None:
        """Raise if a later incarnation was claimed before this call."""
        newest = _newest_incarnation(self._directory)
        if newest > self._incarnation:
            raise FencedError(
                f"the storage directory {self._directory.uri} was taken over",
                detail=f"this process belongs to incarnation {self._incarnation}, and {newest} has started",
                hint=f"see {self._directory.full(INCARNATIONS)} with `ikebana storage list`",
            )

    def _changed(self) -> float:
        """When a claim was last made."""
        try:
            return os.stat(self._directory.full(CLAIMS)).st_mtime_ns
        except OSError as error:
            raise StorageError(
                f"the storage directory {self._directory.uri} cannot be read any more", detail=str(error)
            ) from error
