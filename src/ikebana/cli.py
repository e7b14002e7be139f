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
    from ikebana_bench import SCENARIOS, command  # imports the whole engine, which other commands do not need

    out, err = _console(), _console(stderr=True)
    if name == "list":
        command.list_benchmarks(SCENARIOS, out)
    elif family := command.family(name, SCENARIOS):
        command.run_family(name, family, options, out, err)
    else:
        command.run(command.find(name, SCENARIOS), options, out, err)


def _info() -> None:
    from ikebana_bench.measure import machine
    from ikebana_bench.units import show, split

    table = Table(show_header=False)
    table.add_row("ikebana", __version__)
    for name, value in machine().items():
        table.add_row(split(name)[0], value if isinstance(value, str) else show(name, value))
    _console().print(table)


def _fail(error: IkebanaError) -> int:
    from ikebana_bench.command import UsageError

    print(f"error: {error}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
