"""The command `ikebana datalog`: run a program over facts files, watch the files, or change the facts at a prompt.

    ikebana datalog tc.dl -F facts -D out              # as Soufflé does
    ikebana datalog tc.dl -F facts -D out --watch      # and again whenever a facts file changes
    ikebana datalog tc.dl -F facts --prompt            # insert, delete, query and ask why

While files are watched, and at the prompt, the changes of results are printed as `+ tc(1, 2)` and `- tc(1, 2)`. A facts
file is read whole when it changes; only the facts that differ from those it had before reach the program.

Cost: a change costs what it affects, plus reading the file that changed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa

from ikebana.cluster.processes import Processes
from ikebana.datalog import files, syntax
from ikebana.datalog.check import check_rules
from ikebana.datalog.errors import error_at
from ikebana.datalog.parser import parse_atom
from ikebana.datalog.program import Program, Row, load
from ikebana.engine import Engine
from ikebana.engine.held_epochs import HeldEpoch
from ikebana.errors import DatalogError, IkebanaError

_POLL_SECONDS = 0.2


def run(arguments: argparse.Namespace, out: IO[str] | None = None, commands: IO[str] | None = None) -> None:
    """Run the command; `commands` are the lines of the prompt, by default those of standard input."""
    out = out or sys.stdout
    macros = [macro.partition("=") for text in arguments.macro for macro in text.split()]
    with _engine(arguments.jobs) as engine:
        program = load(
            engine,
            Path(arguments.file),
            name=Path(arguments.file).stem,
            defines={name: text for name, _, text in macros},
            include=arguments.include_dir,
        )
        if arguments.explain:
            print(program.explain(), file=out)
            return
        inputs = WatchedFacts(program, Path(arguments.fact_dir), missing_ok=arguments.no_warn)
        inputs.update()
        program.write_outputs(arguments.output_dir, out)
        if arguments.watch:
            _watch(program, inputs, arguments.output_dir, out)
        elif arguments.prompt:
            Prompt(program, out).run(commands or sys.stdin)


def _engine(jobs: int) -> Engine:
    return Engine(cluster=Processes(jobs)) if jobs > 1 else Engine()


def _watch(program: Program, inputs: WatchedFacts, output_dir: str, out: IO[str]) -> None:
    followed = ResultChanges(program)
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            if inputs.update():
                followed.print(out)
                program.write_outputs(output_dir, out)
        except DatalogError as error:
            print(f"error: {error}", file=sys.stderr)


class WatchedFacts:
    """The facts files of a program; `update` applies what has changed in them since the last time."""

    def __init__(self, program: Program, directory: Path, *, missing_ok: bool = False) -> None:
        self._program, self._directory, self._missing_ok = program, directory, missing_ok
        self._options = files.all_options(program.checked.directives, program.relations, inputs=True)
        self._tables: dict[int, pa.Table] = {}
        self._stamps: dict[int, tuple[int, int] | None] = {}

    def update(self) -> bool:
        """Read the files that have changed, and apply the difference at one epoch; return whether there was any.

        If a file is not valid, nothing is applied; the file is read again when it changes again.
        """
        changed = self._changed_tables()
        if not changed:
            return False
        with self._program.transaction():
            for at, table in changed.items():
                name = self._options[at].relation.name
                before = self._tables.get(at, table.slice(0, 0))
                for rows, change in ((before, self._program.remove), (table, self._program.insert)):
                    others = table if rows is before else before
                    difference = _without(rows, others)
                    if difference.num_rows:
                        change(name, difference)
        self._tables |= changed
        return True

    def _changed_tables(self) -> dict[int, pa.Table]:
        changed = {}
        for at, option in enumerate(self._options):
            stamp = _stamp(option, self._directory)
            if at in self._stamps and stamp == self._stamps[at]:
                continue
            self._stamps[at] = stamp
            if stamp is None and (self._missing_ok or at in self._tables) and option.io == "file":
                continue
            changed[at] = files.read_facts(option, self._directory, self._program.storage)
        return changed


def _stamp(option: files.FileOptions, directory: Path) -> tuple[int, int] | None:
    """What changes with a file: its time and size; None if there is no file."""
    if option.io != "file":
        return None
    with contextlib.suppress(OSError):
        status = option.path(directory).stat()
        return status.st_mtime_ns, status.st_size
    return None


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """The rows that are not among others."""
    if not others.num_rows or not rows.num_rows:
        return rows
    return rows.join(others, rows.schema.names, join_type="left anti")


class ResultChanges:
    """The changes of a program's results since the last time they were asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._held: dict[str, HeldEpoch] = {name: program.relation(name).view.hold() for name in program.outputs}

    def lines(self) -> Iterator[str]:
        """The rows that were added and removed, one after the other."""
        for name, held in self._held.items():
            relation = self._program.relation(name)
            now = relation.view.hold()
            self._held[name] = now
            for _, changes in held.changes(held.epoch, now.epoch):
                table = relation.decoded(changes, "diff")
                columns = [column.to_pylist() for column in table.columns]
                if not self._program.relations[name].arity:
                    columns = columns[1:]
                for *row, diff in sorted(zip(*columns, strict=True), key=lambda entry: (entry[-1], entry)):
                    yield f"{'+' if diff > 0 else '-'} {shown(name, row)}"
            held.release()

    def print(self, out: IO[str]) -> None:
        for line in self.lines():
            print(line, file=out)
        out.flush()


def shown(name: str, row: Sequence[int | float | str]) -> str:
    """A row as a fact."""
    return str(syntax.Atom(name, tuple(syntax.Constant(value, _kind(value)) for value in row)))


def _kind(value: int | float | str) -> syntax.ConstantKind:
    return "symbol" if isinstance(value, str) else "float" if isinstance(value, float) else "number"


# The prompt.


class Prompt:
    """Reads commands, one on each line, and prints what they change and find."""

    def __init__(self, program: Program, out: IO[str]) -> None:
        self._program, self._out = program, out
        self._changes = ResultChanges(program)
        self.commands: dict[str, tuple[str, Callable[[str], None]]] = {
            "insert": ("insert a fact: insert edge(1, 2)", self._insert),
            "delete": ("delete a fact: delete edge(1, 2)", self._delete),
            "query": ("print the rows of a relation that match: query tc(1, _)", self._query),
            "why": ("print a proof of a fact: why tc(1, 5)", self._why),
            "why_not": ("print why rules do not derive a fact: why_not tc(5, 1)", self._why_not),
            "explain": ("print the plan of each rule", self._explain),
            "help": ("print this list", self._help),
        }

    def run(self, lines: IO[str]) -> None:
        """Read commands until the end, or `quit`."""
        is_terminal = lines.isatty()
        while True:
            if is_terminal:
                print("> ", end="", file=self._out, flush=True)
            line = lines.readline()
            word, _, rest = line.strip().partition(" ")
            if not line or word in ("quit", "exit"):
                return
            if word:
                self._do(word, rest.strip().removesuffix("."))

    def _do(self, word: str, rest: str) -> None:
        try:
            if word not in self.commands:
                raise DatalogError(f"there is no command {word!r}", hint="type help for the list of commands")
            self.commands[word][1](rest)
        except IkebanaError as error:
            print(f"error: {error}", file=self._out)

    def _insert(self, text: str) -> None:
        name, row = fact(self._program, text)
        self._program.insert(name, [row])
        self._changes.print(self._out)

    def _delete(self, text: str) -> None:
        name, row = fact(self._program, text)
        self._program.remove(name, [row])
        self._changes.print(self._out)

    def _query(self, text: str) -> None:
        atom = parse_atom(text)
        query = self._program.query(question(atom))
        try:
            for row in sorted(query.open().rows()):
                print(shown(atom.relation, row), file=self._out)
        finally:
            query.close()

    def _why(self, text: str) -> None:
        print(self._program.why(text), file=self._out)

    def _why_not(self, text: str) -> None:
        print(self._program.why_not(text), file=self._out)

    def _explain(self, text: str) -> None:
        print(self._program.explain(), file=self._out)

    def _help(self, text: str) -> None:
        for help_text, _ in self.commands.values():
            print(help_text, file=self._out)
        print("end: quit", file=self._out)


def fact(program: Program, text: str) -> tuple[str, Row]:
    """A fact as it is written, checked: the relation, and its row."""
    (rule,) = check_rules([syntax.Rule(parse_atom(text, "<fact>"))], program.relations)
    arguments = rule.head.arguments
    if not all(isinstance(argument, syntax.Constant) for argument in arguments):
        raise DatalogError(f"{text} is not a fact", hint="use constants only")
    return rule.head.relation, tuple(argument.value for argument in arguments if isinstance(argument, syntax.Constant))


def question(atom: syntax.Atom) -> str:
    """The question that asks for the rows of a relation that match an atom; its variables and wildcards are free."""
    arguments = [_asked(argument) for argument in atom.arguments]
    return f"{atom.relation}({', '.join(arguments)})"


def _asked(argument: syntax.Expression) -> str:
    match argument:
        case syntax.Wildcard():
            return "?"
        case syntax.Variable(name=name):
            return name if name.startswith("?") else f"?{name}"
        case syntax.Constant():
            return str(argument)
        case _:
            raise error_at(argument.position, "a query has constants and variables only")
