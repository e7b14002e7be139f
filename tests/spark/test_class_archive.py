"""The archive of Spark's classes is used if it is there, and never stands in the way."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ikebana.spark import class_archive
from ikebana.spark.class_archive import ArchiveDescription, Environment
from ikebana.spark.java import find_java

FILES = "java.jsa", "spark.jsa"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "ikebana"


def put_archive(cache: Path, environment: Environment) -> Path:
    archive = cache / environment.name
    archive.mkdir(parents=True)
    for name in FILES:
        (archive / name).write_bytes(b"classes")
    (archive / "archive.json").write_text(json.dumps(ArchiveDescription(environment, [7, 7])))
    return archive


def test_an_archive_is_used_if_it_is_complete(cache: Path) -> None:
    java = find_java()
    assert class_archive.options(java) == ""
    archive = put_archive(cache, Environment.of(java))
    used = shlex.split(class_archive.options(java))
    assert used[0] == f"-XX:SharedArchiveFile={archive / 'java.jsa'}:{archive / 'spark.jsa'}"
    for name in (*FILES, "archive.json"):
        content = (archive / name).read_bytes()
        (archive / name).write_bytes(content[:-1])
        assert class_archive.options(java) == ""
        (archive / name).unlink()
        assert class_archive.options(java) == ""
        (archive / name).write_bytes(content)
    assert shlex.split(class_archive.options(java)) == used


def test_an_archive_is_for_one_java_and_one_spark(tmp_path: Path) -> None:
    other = tmp_path / "java"
    other.touch()
    first = Environment.of(other)
    os.utime(other, ns=(1, 1))
    assert len({Environment.of(find_java()).name, first.name, Environment.of(other).name}) == 3


def test_a_java_that_cannot_write_archives_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "java"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setattr(class_archive, "find_java", lambda: other)
    assert class_archive.write() is None and not list(cache.iterdir())


def test_archives_of_what_was_removed_are_deleted(cache: Path) -> None:
    environment = Environment.of(find_java())
    kept = put_archive(cache, environment)
    put_archive(cache, environment._replace(jars="/nowhere"))
    class_archive._delete_unused(cache)
    assert list(cache.iterdir()) == [kept]


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_starts_with_the_archive_that_was_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thorough because writing takes half a minute; what `make` installs is written in the same way."""
    archive = class_archive.write()
    assert archive is not None and archive.parent == cache and class_archive.write() == archive
    monkeypatch.setattr(class_archive, "_QUIET", "-Xshare:on")  # Java does not start if it cannot use the archive
    options = class_archive.options(find_java())
    script = (
        "import sys; from ikebana.spark import spark_session; config = {'spark.driver.extraJavaOptions': sys.argv[1]}; "
        "assert spark_session.start(0, config=config).range(3).count() == 3"
    )
    subprocess.run([sys.executable, "-c", script, options], check=True, timeout=600)
