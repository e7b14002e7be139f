"""An archive of the Java classes that Spark loads, from which Java starts much faster (class data sharing).

Before its first answer, Spark loads and verifies some 15,000 classes: two fifths of the processor time of a start. Java
can write the classes that a process has loaded to an archive, and map them from there into later processes.

`write` starts a session, lets it do what sessions usually do first, and lets Java write the archive when the session
ends; `ikebana warm` calls it. Sessions that `connect` starts then use the archive. Writing it takes half a minute, and
170 MB on disk.

Guaranteed: an archive that is not complete is not used; Java might crash. Java checks that the archive is its own and
that the jar files have not changed; otherwise it starts as if there were no archive. Archives of environments that do
not exist any more are deleted when another one is written. Archives are in a directory to which only the user can write
(`ikebana.spark.java`).

Not guaranteed: any gain if the settings of a session change Spark's class path or replace the options for Java, or with
a Java other than HotSpot.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyspark
from pyspark import SparkContext

from ikebana.spark.java import find_java, private_cache

_JAVA, _SPARK, _DESCRIPTION = "java.jsa", "spark.jsa", "archive.json"
"""The files of an archive: Java's own classes, Spark's on top of them, and an `ArchiveDescription`."""

_QUIET = "-Xlog:disable"
"""Java prints a warning if it cannot use an archive, unless it is told not to."""

_SECONDS = 600.0
"""How long writing may take."""


class Environment(NamedTuple):
    """What an archive is for: a Java runtime and the jar files of Spark, and when they were changed."""

    java: str
    jars: str
    changed: tuple[int, int]

    @classmethod
    def of(cls, java: Path) -> Environment:
        """The environment of Spark on a Java runtime."""
        runtime, jars = java.resolve(), Path(pyspark.__file__).parent / "jars"
        return cls(str(runtime), str(jars), (runtime.stat().st_mtime_ns, jars.stat().st_mtime_ns))

    @property
    def name(self) -> str:
        """The name of the directory with the archive."""
        return f"classes-{hashlib.sha256(json.dumps(self).encode()).hexdigest()[:16]}"


class ArchiveDescription(NamedTuple):
    """What an archive is for, and the sizes of its files."""

    environment: Environment
    sizes: list[int]

    @classmethod
    def read(cls, archive: Path) -> ArchiveDescription | None:
        """The description of an archive; None if it has none."""
        try:
            environment, sizes = json.loads((archive / _DESCRIPTION).read_text())
            return cls(Environment(*environment), sizes)
        except (OSError, ValueError, TypeError):
            return None


def _sizes(archive: Path) -> list[int]:
    """The sizes of the files of an archive; raises if one is missing."""
    return [(archive / name).stat().st_size for name in (_JAVA, _SPARK)]


def _is_complete(archive: Path) -> bool:
    description = ArchiveDescription.read(archive)
    try:
        return description is not None and description.sizes == _sizes(archive)
    except OSError:
        return False


def options(java: Path) -> str:
    """The options with which a Java runtime uses its archive of Spark's classes; empty if there is none."""
    root = private_cache()
    if root is None or not _is_complete(archive := root / Environment.of(java).name):
        return ""
    return f'"-XX:SharedArchiveFile={archive / _JAVA}:{archive / _SPARK}" {_QUIET}'


def write() -> Path | None:
    """Write the archive for this environment, unless there is one. Return its directory; None if Java cannot."""
    root, environment = private_cache(), Environment.of(find_java())
    if root is None:
        return None
    archive = root / environment.name
    if not _is_complete(archive):
        _delete_unused(root)
        shutil.rmtree(archive, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=root))
        try:
            _write_files(draft, environment)
            draft.rename(archive)
        except (OSError, subprocess.SubprocessError):  # another process was faster, or Java or the disk refuses
            shutil.rmtree(draft)
    return archive if _is_complete(archive) else None


def _write_files(draft: Path, environment: Environment) -> None:
    java, spark = draft / _JAVA, draft / _SPARK
    _run(environment.java, "-Xshare:dump", f"-XX:SharedArchiveFile={java}")
    _run(sys.executable, "-m", __name__, f'"-XX:SharedArchiveFile={java}" "-XX:ArchiveClassesAtExit={spark}" {_QUIET}')
    (draft / _DESCRIPTION).write_text(json.dumps(ArchiveDescription(environment, _sizes(draft))))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_SECONDS)


def _delete_unused(root: Path) -> None:
    """Delete the archives whose Java or Spark is not there any more."""
    for archive in root.glob("classes-*"):
        description = ArchiveDescription.read(archive)
        if description is None or not all(map(os.path.exists, description.environment[:2])):
            shutil.rmtree(archive, ignore_errors=True)


def _use_a_session(java_options: str) -> None:
    """Start Spark with options for Java, load the classes that sessions need, and wait until Java has ended."""
    from ikebana.spark.connecting import connect  # imports this module

    with connect(workers=1, config={"spark.driver.extraJavaOptions": java_options}) as session:
        table = session.create_table("orders", "id BIGINT, customer STRING, price DECIMAL(12, 2)", key="id")
        table.load(session.spark.range(100).selectExpr("id", "concat('c', id % 10) AS customer", "1.5 AS price"))
        view = session.view("totals", "SELECT customer, sum(price) AS total FROM orders GROUP BY customer")
        view.to_df().where("total > 1").orderBy("customer").collect()
        session.sql("SELECT count(*) FROM orders JOIN totals USING (customer)").collect()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    _use_a_session(sys.argv[1])
