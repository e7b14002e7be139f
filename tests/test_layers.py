"""The architecture, held by tests: imports point downward, files explain themselves, versions are fixed.

`LAYERS` is the architecture. A new package or top-level module needs a place in it.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ikebana"

# Bottom first. A part imports itself and the lines above its own here, never its neighbours on the line.
LAYERS = (
    ("errors", "machine", "model", "lazy_imports", "pandas_import"),
    ("time",),
    ("kernels",),
    ("encoding",),
    ("trace", "expressions"),
    ("operators", "storage"),
    ("plan",),
    ("runtime",),
    ("cluster",),
    ("engine",),
    ("reducers", "graph"),
    ("datalog",),
    ("sql",),
    ("spark", "analysis"),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

# Libraries that only one part may import.
ONLY_IN = {"numba": "kernels", "llvmlite": "kernels", "zmq": "cluster", "pyspark": "spark", "clang": "analysis"}

# Parts that may import nothing but this and, where it is not `model`, the standard library.
NOTHING_BUT = {"model": set(), "kernels": {"numpy", "numba", "llvmlite", "ikebana.errors"}}

ENGINE = (
    *("errors", "model", "time", "kernels", "encoding", "trace"),
    *("operators", "storage", "plan", "runtime", "cluster", "engine", "spark"),
)

MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(path: Path) -> str:
    """The package or top-level module that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> list[str]:
    """Full names of everything a file imports, wherever in the file; of `from a import b`, `a.b`."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = ("ikebana", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*base, *filter(None, [node.module])))
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def imported_part(name: str) -> str | None:
    """The part of ours that an import reaches, None for a library."""
    top, *rest = name.split(".")
    if top != "ikebana":
        return None
    return rest[0] if rest and rest[0] in RANK else "__init__"


def is_within(name: str, allowed: set[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)


def test_every_part_has_a_layer() -> None:
    strangers = {part_of(path) for path in MODULES} - RANK.keys()
    assert not strangers, f"give {sorted(strangers)} a place in LAYERS"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downward(path: Path) -> None:
    part = part_of(path)
    for name in imports(path):
        target = imported_part(name)
        if target not in (None, part):
            assert RANK[target] < RANK[part], f"{part} is not above {target}, yet imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_libraries_stay_in_their_part(path: Path) -> None:
    part = part_of(path)
    for name in imports(path):
        library = name.split(".")[0]
        assert ONLY_IN.get(library, part) == part, f"only {ONLY_IN.get(library)} imports {library}"


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p) in NOTHING_BUT], ids=name_of)
def test_austere_parts_import_only_what_they_may(path: Path) -> None:
    part = part_of(path)
    standard = set() if part == "model" else sys.stdlib_module_names
    allowed = NOTHING_BUT[part] | {f"ikebana.{part}"} | standard
    refused = [name for name in imports(path) if not is_within(name, allowed)]
    assert not refused, f"{part} may not import {refused}"


def test_what_travels_to_executors_by_value_needs_nothing_there() -> None:
    allowed = {"pyspark", *sys.stdlib_module_names}
    refused = [name for name in imports(SOURCE / "spark" / "supervisor.py") if not is_within(name, allowed)]
    assert not refused, f"an executor's Python would import {refused}"


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p) in ENGINE], ids=name_of)
def test_engine_files_open_with_an_explanation(path: Path) -> None:
    docstring = ast.get_docstring(parsed(path)) or ""
    lines = [line for line in docstring.splitlines() if line.strip()]
    assert len(lines) >= (1 if path.name == "__init__.py" else 3), "say what the file is for, what holds, what it costs"


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(line.partition("==")[0]) for line in lines}


def declared() -> list[str]:
    """The requirements of the library and of the benchmarks, with their extras."""
    requirements: list[str] = []
    for path in (ROOT / "pyproject.toml", ROOT / "benchmarks" / "pyproject.toml"):
        pyproject = tomllib.loads(path.read_text())
        project = pyproject["project"]
        extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
        requirements += [*pyproject["build-system"]["requires"], *project["dependencies"], *extras]
    return [requirement for requirement in requirements if requirement != project_name()]


def project_name() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]


def closure(requirements: list[str]) -> set[str]:
    """Names of everything that installing the requirements installs here, as far as that is here."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(name)
            with suppress(importlib.metadata.PackageNotFoundError):  # of an extra that tests do without
                waiting += map(Requirement, importlib.metadata.requires(name) or [])
    return names


def test_constraints_are_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.\-]+(\[.*\])?==[^ ]+", line), line


def test_everything_installed_is_pinned() -> None:
    assert closure(declared()) <= pinned()


def test_nothing_names_a_package_index() -> None:
    address = re.compile(r"https?://\S*/simple\b|--(extra-)?index-url|--find-links|--trusted-host")
    plain = [ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run")]
    for path in [*plain, *MODULES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        assert not address.search(path.read_text()), path.relative_to(ROOT)
