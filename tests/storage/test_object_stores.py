"""Storage directories on object stores: what a request costs, what fails, and what is said about it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from ikebana.cli import main
from ikebana.errors import CorruptionError, StorageError
from ikebana.storage import Shard, Store, Transaction, log, open_directory
from ikebana.storage.faults import FaultPoint, installed
from ikebana.storage.filesystems import _JOINED_BYTES, without_credentials
from ikebana.storage.inspection import check
from ikebana.storage.layout import HEARTBEATS
from tests.profiles import PROFILE
from tests.storage.harness import Harness, recovered_rows
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from tests.storage.short_leases import short_leases


@pytest.fixture(autouse=True)
def leases() -> Iterator[None]:
    with short_leases():
        yield


@pytest.fixture
def server(s3: S3Server) -> Iterator[S3Server]:
    """An object store of our own, which does what it should when the test is over."""
    if not s3.is_own:
        pytest.skip("another server is used, which cannot be told to fail")
    yield s3
    s3.interfere = lambda method, path: None


def stored(uri: str, shards: int = 2) -> Harness:
    """A storage directory with snapshots, and transactions after them."""
    system = Harness(lambda: open_directory(uri))
    system.open(shards)
    system.put("table", {"columns": ["k", "v"]})
    for number in range(6):
        system.transact(Counter({(2 * number, "a"): 1, (2 * number + 1, "b"): 1}))
        if number == 3:
            for shard in range(shards):
                system.snapshot(shard)
    return system


def test_what_is_stored_comes_back_with_another_number_of_workers(s3: S3Server) -> None:
    system = stored(s3.new_uri())
    for shards in (3, 1):
        system.reopen(shards)
        system.transact(Counter({(100 + shards, "c"): 1}))
        for shard in range(shards):
            system.snapshot(shard)
        system.collect_old()
        system.trim()
    system.reopen(2)
    assert len(system.model.rows) == 14
    system.store.close()


def test_credentials_are_never_shown(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    uri = s3.new_uri()
    path = uri.partition("@")[2].partition("?")[0]
    stored(uri).store.close()
    assert main(["storage", "list", uri]) == 0 and main(["storage", "check", uri]) == 0
    shown = capsys.readouterr()
    assert f"s3://{path}: " in shown.out and "no damage" in shown.out
    with pytest.raises(StorageError) as caught:
        open_directory(f"{uri}&colour=red")
    assert "unknown option 'colour'" in str(caught.value)
    for text in (shown.out, shown.err, str(caught.value), open_directory(uri).full("format.json")):
        assert ACCESS_KEY not in text and SECRET_KEY not in text


def test_credentials_can_be_in_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials, _, rest = s3.new_uri().removeprefix("s3://").partition("@")
    assert credentials.startswith(ACCESS_KEY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    directory = open_directory(f"s3://{rest}")
    directory.write("file", [b"content"])
    assert directory.read("file") == b"content"


def test_a_flipped_bit_is_found(s3: S3Server) -> None:
    uri, chance = s3.new_uri(), random.Random(3)
    stored(uri).store.close()
    directory = open_directory(uri)
    assert check(directory) == []
    files = directory.files()
    for entry in chance.sample(files, 3) if PROFILE == "quick" else files:
        content = bytes(directory.read(entry.path))
        damaged = bytearray(content)
        damaged[chance.randrange(entry.size)] ^= 1 << chance.randrange(8)
        directory.write(entry.path, [bytes(damaged)])
        damages = check(directory)
        assert damages and damages[0].path == entry.path
        directory.write(entry.path, [content])
    batch = next(entry.path for entry in directory.files() if entry.path.endswith(".batch"))
    directory.write(batch, [bytes(directory.read(batch))[:-64] + bytes(64)])
    with pytest.raises(CorruptionError, match=r"is damaged(.|\n)*rows of table 'rows#1'"):
        recovered_rows(Store.open(directory, shards=2).recovery)


def test_large_files_are_sent_in_parts(s3: S3Server) -> None:
    directory = open_directory(s3.new_uri())
    pieces = [random.Random(size).randbytes(size) for size in (3 * _JOINED_BYTES, 5, _JOINED_BYTES)]
    directory.write("a/large file", pieces)
    assert directory.read("a/large file") == b"".join(pieces)
    assert [entry.size for entry in directory.files()] == [4 * _JOINED_BYTES + 5]


def test_a_commit_takes_one_request(server: S3Server) -> None:
    requests: list[tuple[str, str]] = []
    with Store.open(server.new_uri(), shards=1) as store, Shard.open(store.place, store.incarnation, 0) as shard:
        shard.log.commit(Transaction(store.new_transaction(), 0, (0,)))
        server.interfere = lambda method, path: requests.append((method, path))
        for epoch in range(1, 6):
            shard.log.commit(Transaction(store.new_transaction(), epoch, (0,)))
        server.interfere = lambda method, path: None
    # The driver renews its lease meanwhile, and the fence lists the claims now and then.
    own = [(method, path) for method, path in requests if "/shard-0000/" in path]
    others = [path for _, path in requests if "/shard-0000/" not in path and f"/{HEARTBEATS}/" not in path]
    assert [method for method, _ in own] == 5 * ["PUT"] and len({path for _, path in own}) == 5
    assert all(path.count("/") == 1 for path in others), "only the bucket is listed"


def test_many_small_files_of_a_log_are_a_reason_for_a_snapshot(s3: S3Server) -> None:
    with Store.open(s3.new_uri(), shards=1) as store, Shard.open(store.place, store.incarnation, 0) as shard:
        for epoch in range(3):
            shard.log.commit(Transaction(store.new_transaction(), epoch, (0,)))
        assert shard.log.bytes > 3 * log._FILE_BYTES
        shard.publish(2, {})
        assert shard.trim(2).files == 3
        assert not [entry for entry in open_directory(store.place).files() if "shard-0000/log" in entry.path]


def test_a_store_that_is_busy_for_a_moment_is_asked_again(server: S3Server) -> None:
    directory, refused = open_directory(server.new_uri()), Counter[str]()
    directory.write("first", [b"1"])

    def busy(method: str, path: str) -> int | None:
        refused[path] += 1
        return 503 if refused[path] == 1 else None

    server.interfere = busy
    directory.write("second", [b"2"])
    assert directory.read("first") == b"1" and max(refused.values()) > 1


def test_a_store_that_fails_ends_a_log_and_what_was_acknowledged_is_there(server: S3Server) -> None:
    uri = f"{server.new_uri()}&attempts=1"
    system = stored(uri, shards=1)
    server.interfere = lambda method, path: 500 if "/log-" in path else None
    with pytest.raises(StorageError, match="cannot write s3://"):
        system.workers[0].log.commit(Transaction(system.store.new_transaction(), system.epoch + 1, (0,)))
    server.interfere = lambda method, path: None
    with pytest.raises(StorageError, match="cannot be written any more"):
        system.workers[0].log.commit(Transaction(system.store.new_transaction(), system.epoch + 1, (0,)))
    system.restart(2)
    assert len(system.model.rows) == 12
    system.store.close()


def test_errors_say_what_to_do(server: S3Server) -> None:
    path = server.new_uri().partition("@")[2].partition("?")[0]
    cases = {
        f"{server.uri(path, key='thief')}": "credentials|AWS_ACCESS_KEY_ID",
        server.uri(path).replace("&allow_bucket_creation=true", ""): "create the bucket",
        server.uri(path).replace(server.address, "127.0.0.1:1") + "&attempts=1": "endpoint_override",
    }
    for uri, hint in cases.items():
        with pytest.raises(StorageError, match=hint) as caught:
            Store.open(uri, shards=1)
        assert f"s3://{path}" in str(caught.value)
    for uri, problem in {"s3:///path": "names no bucket", f"{server.new_uri()}&attempts=x": "attempts"}.items():
        with pytest.raises(StorageError, match=problem):
            open_directory(uri)


@pytest.mark.parametrize("uri", ["ftp://user:hidden@host/a path", "gs://hidden@host/path", "s3://key:hidden@b[/path"])
def test_uris_that_cannot_be_opened_are_shown_without_credentials(uri: str) -> None:
    with pytest.raises(StorageError, match="cannot open the storage directory") as caught:
        open_directory(uri)
    assert "hidden" not in str(caught.value)
    assert without_credentials("abfs://box:hidden@account.net/path") == "abfs://box@account.net/path"


def test_nothing_is_left_of_earlier_incarnations(s3: S3Server) -> None:
    system = stored(s3.new_uri(), shards=1)
    for _ in range(3):
        system.reopen(1)
    system.snapshot(0)
    system.collect_old()
    directory, newest = open_directory(system.store.place), f"{system.store.incarnation:06d}"
    needed = {file.path for file in system.workers[0].manifest.files}  # type: ignore[union-attr]
    left = [entry.path for entry in directory.files() if newest not in entry.path and entry.path not in needed]
    assert left == ["format.json"]
    assert directory.folders("incarnations") == sorted({newest, *(path.split("/")[1] for path in needed)})
    system.store.close()


def test_a_crash_between_deletions_leaves_the_other_files(s3: S3Server) -> None:
    directory = open_directory(s3.new_uri())
    names = [f"file {number}" for number in range(5)]
    for name in names:
        directory.write(name, [b"x"])

    def fault(point: FaultPoint, path: str) -> None:
        if path == names[3]:
            raise KeyboardInterrupt

    with installed(fault), pytest.raises(KeyboardInterrupt):
        directory.delete_all(names)
    assert [entry.path for entry in directory.files()] == names[3:]
    directory.delete_all(names)
    assert directory.files() == []
