"""The command `ikebana`.

Exit status: 0 for success; 1 for an error, or a benchmark whose results did not verify; 2 for invalid arguments; 130 if
interrupted. Errors and progress go to stderr, results to stdout.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table

from ikebana import __version__
from ikebana.errors import IkebanaError
from ikebana.machine import machine


class UsageError(IkebanaError):
    """A command with arguments that make no sense; the command exits with status 2."""


def main(arguments: Sequence[str] | None = None, *, prog: str = "ikebana") -> int:
    parsed = _parser(prog).parse_args(arguments)
    try:
        if parsed.command == "bench":
            _bench(parsed.name, parsed.options)
        elif parsed.command == "datalog":
            _datalog(parsed)
        elif parsed.command == "analysis":
            _analysis(parsed)
        elif parsed.command == "storage":
            _storage(parsed)
        elif parsed.command == "warm":
            _warm()
        else:
            _info()
        return 0
    except IkebanaError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Shared arrangements for Spark.")
    parser.add_argument("--version", action="version", version=f"ikebana {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    bench = commands.add_parser(
        "bench",
        help="run a benchmark, or list them",
        usage="ikebana bench list | NAME [options]",
        epilog="`ikebana bench NAME --help` shows a benchmark's options.",
    )
    bench.add_argument("name", nargs="?", default="list", metavar="NAME", help="a benchmark, or `list`")
    bench.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    datalog = commands.add_parser("datalog", help="run a Datalog program, and keep its results up to date")
    _add_datalog_arguments(datalog)
    _add_analysis(commands.add_parser("analysis", help="analyse C source: which nulls may be dereferenced"))
    _add_storage_arguments(commands.add_parser("storage", help="show or check a storage directory"))
    commands.add_parser("warm", help="compile everything now that would be compiled at the first start, for images")
    commands.add_parser("info", help="show versions and the machine, for a report of a problem")
    return parser


def _add_analysis(parser: argparse.ArgumentParser) -> None:
    from ikebana.analysis.command import add_arguments

    add_arguments(parser)


def _analysis(parsed: argparse.Namespace) -> None:
    from ikebana.analysis.command import run

    run(parsed, _console(), _console(stderr=True))


def _add_storage_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, purpose in (
        ("list", "show what is stored: versions, tables, the catalogue, sizes"),
        ("check", "read every file, and show which are damaged and what is lost"),
    ):
        actions.add_parser(name, help=purpose).add_argument("uri", metavar="URI", help="the storage directory")


def _storage(parsed: argparse.Namespace) -> None:
    from ikebana.storage.command import run  # imports much that other commands do not need

    run(parsed, _console(), _console(stderr=True))


def _bench(name: str, options: Sequence[str]) -> None:
    try:
        from ikebana_bench import SCENARIOS, command  # imports the whole engine, which other commands do not need
    except ModuleNotFoundError as error:
        if error.name != "ikebana_bench":
            raise
        raise IkebanaError(
            "the benchmarks are not installed",
            detail="they are a package of their own in a checkout of ikebana",
            hint="in a checkout, run `make bench`, or install them with `pip install ./benchmarks`",
        ) from None
    out, err = _console(), _console(stderr=True)
    if name == "list":
        command.list_benchmarks(SCENARIOS, out)
    elif family := command.family(name, SCENARIOS):
        command.run_family(name, family, options, out, err)
    else:
        command.run(command.find(name, SCENARIOS), options, out, err)


def _add_datalog_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command `datalog`; those of Soufflé have its names."""
    parser.add_argument("file", metavar="FILE.dl", help="the program")
    parser.add_argument("-F", "--fact-dir", default=".", metavar="DIR", help="the folder of facts files")
    parser.add_argument("-D", "--output-dir", default=".", metavar="DIR", help="the folder for results; - prints them")
    parser.add_argument("-I", "--include-dir", action="append", default=[], metavar="DIR", help="for included files")
    parser.add_argument("-M", "--macro", action="append", default=[], metavar="NAME=TEXT", help="define a macro")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="the number of worker processes")
    parser.add_argument("-w", "--no-warn", action="store_true", help="ignore facts files that do not exist")
    parser.add_argument("--explain", action="store_true", help="print the plan of each rule, and do not run")
    parser.add_argument("--watch", action="store_true", help="read facts files again when they change")
    parser.add_argument("--prompt", action="store_true", help="read commands to insert, delete, query and ask why")


def _datalog(parsed: argparse.Namespace) -> None:
    from ikebana.datalog import command  # imports the whole engine, which other commands do not need

    if parsed.jobs < 1:
        raise UsageError("-j needs a number of worker processes", hint="use -j 1 or more")
    command.run(parsed)


def _warm() -> None:
    """Compile all kernels into the cache, write an archive of Spark's classes, and say what was done."""
    from ikebana import kernels  # imports NumPy and Numba, which other commands do not need
    from ikebana.kernels.cache import cache_directory
    from ikebana.spark import class_archive  # imports pyspark

    compiled = kernels.load()
    done = f"compiled {compiled} kernels" if compiled else "all kernels were compiled before"
    print(f"{done}: {cache_directory()}", flush=True)
    archive = class_archive.write()
    print(f"Spark's classes are archived: {archive}" if archive else "this Java cannot archive Spark's classes")


_PACKAGES = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "numba", "llvmlite", "pyzmq", "cloudpickle", "psutil")
"""The packages whose versions matter in a report of a problem."""


def _info() -> None:
    table = Table(show_header=False)
    table.add_row("ikebana", __version__)
    for name, value in machine().items():
        if name not in _PACKAGES:
            is_size = name.endswith("_bytes")
            table.add_row(name.removesuffix("_bytes"), f"{int(value) / 2**30:.1f} GiB" if is_size else str(value))
    table.add_row("system", platform.platform())
    table.add_row("java", _java())
    for name in _PACKAGES:
        table.add_row(name, _version(name))
    _console().print(table)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _java() -> str:
    """The version of the Java runtime that Spark would be started with."""
    from ikebana.spark.java import find_java  # imports pyspark, which other commands do not need

    try:
        shown = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError, IkebanaError) as error:
        return f"not found: {error}"
    lines = [line for line in shown.splitlines() if "version" in line] or [shown.strip()]
    return lines[0]


def _fail(error: IkebanaError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
