"""The command `ikebana`.

Exit status: 0 for success; 1 for an error, or a benchmark whose results did not verify; 2 for invalid arguments; 130 if
interrupted. Errors and progress go to stderr, results to stdout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ikebana import __version__
from ikebana.errors import IkebanaError
from ikebana.machine import machine


class UsageError(IkebanaError):
    """A command with arguments that make no sense; the command exits with status 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "bench":
            _bench(parsed.name, parsed.options)
        else:
            _info()
        return 0
    except IkebanaError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ikebana", description="Shared arrangements for Spark.")
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
    commands.add_parser("info", help="show versions and the machine")
    return parser


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


def _info() -> None:
    table = Table(show_header=False)
    table.add_row("ikebana", __version__)
    for name, value in machine().items():
        is_size = name.endswith("_bytes")
        table.add_row(name.removesuffix("_bytes"), f"{int(value) / 2**30:.1f} GiB" if is_size else str(value))
    _console().print(table)


def _fail(error: IkebanaError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
