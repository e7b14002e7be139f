"""The commands `ikebana analysis extract`, `ikebana analysis run` and `ikebana analysis graspan`.

Results go to stdout, progress and warnings to stderr. What a command needs is imported when it runs, since all commands
of `ikebana` import this module.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

if TYPE_CHECKING:
    from ikebana.analysis.extraction import Extraction
    from ikebana.analysis.extraction import Progress as OnFile

_SHOWN_ERRORS = 3
"""How many files that do not compile completely are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their options."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    extract = commands.add_parser("extract", help="read C source, and write the facts of the program as files")
    _add_source(extract)
    extract.add_argument("-o", "--output", required=True, type=Path, help="the directory for the files of facts")
    run = commands.add_parser("run", help="show which nulls may be dereferenced where")
    _add_source(run)
    run.add_argument("--workers", type=int, default=1, help="workers, in this process")
    run.add_argument("--watch", action="store_true", help="read files again when they change, and show what changes")
    run.add_argument("--interval", type=float, default=1.0, help="seconds between looks at the files (default: 1)")
    graspan = commands.add_parser("graspan", help="derive the edges of a grammar from a list of edges")
    graspan.add_argument("grammar", type=Path, help="a grammar: lines `A B C`, `A B` or `A`")
    graspan.add_argument("edges", type=Path, help="a list of edges: lines `source target label`")
    graspan.add_argument("-o", "--output", type=Path, help="a directory for files of the derived edges")
    graspan.add_argument("--workers", type=int, default=1, help="workers, in this process")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="the directory of the C source")
    parser.add_argument("-I", dest="include", action="append", default=[], help="a directory with headers")
    parser.add_argument("-D", dest="define", action="append", default=[], help="a macro: NAME or NAME=VALUE")
    parser.add_argument("--allocator", action="append", default=[], help="a function that returns new memory")
    parser.add_argument("--jobs", type=int, help="processes that read files (default: one for each core)")


def run(options: argparse.Namespace, out: Console, err: Console) -> None:
    """Run a command."""
    {"extract": _extract, "run": _run, "graspan": _graspan}[options.action](options, out, err)


def _compiler_arguments(options: argparse.Namespace) -> list[str]:
    folders = [f"-I{Path(folder).resolve()}" for folder in options.include]
    return [*folders, *(f"-D{macro}" for macro in options.define)]


# Source.


def _extract(options: argparse.Namespace, out: Console, err: Console) -> None:
    from ikebana.analysis.extraction import Extraction

    extraction = Extraction(
        options.source, _compiler_arguments(options), allocators=options.allocator, output=options.output
    )
    with _FileBar(err) as on_file:
        extraction.load(options.jobs, on_file)
    extraction.write(options.output)
    _show_facts(extraction, out)
    _show_errors(extraction, err)


def _run(options: argparse.Namespace, out: Console, err: Console) -> None:
    from ikebana.analysis.live import Analysis, Finding

    def show(findings: Sequence[Finding], mark: str) -> None:
        for finding in findings:
            out.print(f"{mark} {finding}", soft_wrap=True)

    arguments = _compiler_arguments(options)
    with Analysis(options.source, arguments, allocators=options.allocator, workers=options.workers) as analysis:
        with _FileBar(err) as on_file:
            analysis.load(options.jobs, on_file)
        table = Table("dereference", "expression", "null", "assignment")
        for finding in analysis.findings():
            table.add_row(str(finding.use), finding.use.name, str(finding.null), finding.null.name)
        out.print(table if table.row_count else "no null reaches a dereference")
        _show_errors(analysis.extraction, err)
        while options.watch:
            time.sleep(options.interval)
            change = analysis.refresh()
            show(change.gone, "-")
            show(change.new, "+")


class _FileBar:
    """A progress bar of files, on a terminal only."""

    def __init__(self, err: Console) -> None:
        self._bar = Bar(console=err, transient=True, disable=not err.is_terminal)

    def __enter__(self) -> OnFile:
        self._bar.start()
        task = self._bar.add_task("reading", total=None)

        def on_file(name: str, done: int, total: int) -> None:
            self._bar.update(task, description=name, completed=done, total=total)

        return on_file

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def _show_facts(extraction: Extraction, out: Console) -> None:
    from ikebana.analysis.facts import RELATIONS

    table = Table("relation", "facts")
    table.columns[1].justify = "right"
    for relation in RELATIONS:
        table.add_row(relation, f"{len(extraction.facts(relation)):,}")
    table.add_row("nodes", f"{len(extraction.nodes):,}")
    out.print(table)


def _show_errors(extraction: Extraction, err: Console) -> None:
    errors = extraction.errors
    if not errors:
        return
    total = sum(count for count, _ in errors.values())
    err.print(f"{len(errors)} files do not compile completely ({total} errors); their other parts were read:")
    for _, first in list(errors.values())[:_SHOWN_ERRORS]:
        err.print(f"  {first}", soft_wrap=True)
    err.print("-I names directories with missing headers", soft_wrap=True)


# Graspan.


def _graspan(options: argparse.Namespace, out: Console, err: Console) -> None:
    import numpy as np

    from ikebana.analysis.facts import write_pairs
    from ikebana.analysis.grammar import Grammar, edges_of, read_edges, relation
    from ikebana.analysis.live import graph_inputs, push_facts
    from ikebana.datalog import Program
    from ikebana.engine import Engine

    grammar, edges = Grammar.read(options.grammar), read_edges(options.edges)
    unknown = sorted(label for label in edges if grammar.symbol(label) is None)
    if unknown:
        err.print(f"the grammar has no symbol {', '.join(unknown)}: these edges are ignored", soft_wrap=True)
    facts = edges_of(grammar, edges)
    table = Table("symbol", "edges")
    table.columns[1].justify = "right"
    with Engine(options.workers) as engine:
        inputs = graph_inputs(engine, "graph", map(relation, grammar.labels))
        program = Program(engine, grammar.datalog(), relations=inputs)
        push_facts(inputs, {name: facts[name] for name in inputs}, {})
        engine.advance()
        for symbol in grammar.derived:
            if len(facts.get(relation(symbol), ())):
                program.insert(relation(symbol), dict(zip("xy", facts[relation(symbol)].T, strict=True)))
        for symbol in grammar.derived:
            rows = program.relation(relation(symbol)).to_arrow()
            table.add_row(symbol, f"{rows.num_rows:,}")
            if options.output is not None:
                options.output.mkdir(parents=True, exist_ok=True)
                pairs = np.stack([column.to_numpy() for column in rows.columns], axis=1)
                write_pairs(options.output / f"{relation(symbol)}.csv", pairs)
    out.print(table)
