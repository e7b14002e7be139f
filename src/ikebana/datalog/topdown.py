"""Questions to a program, answered top down: only what an answer needs is computed.

    query = program.query("tc(x, ?)")          # one dataflow for all values of x
    query.read(x=5)                            # the answer now, as an Arrow table
    program.query("tc(x, ?)", x=5).read()      # the same for one value only

    answer = query.open(x=5)                   # an answer that is kept up to date
    answer.rows()                              # {(5, 7), (5, 9)}
    answer.close()

The program is rewritten by magic sets (`ikebana.datalog.magic`) for the arguments that are bound
(`ikebana.datalog.questions` has the forms of a question). The values of the parameters are rows of a collection, like
those of a prepared statement (`ikebana.engine.prepared`): a thousand open answers are one dataflow, and share what they
have in common. The answer of an opening consists of the rows of the rewritten relation that have its values. Where
magic sets do not apply, the relation itself is read, evaluated in full; `Query.explain` says so.

Facts and relations that are evaluated in full are those of the program, with their indexes. Everything else belongs to
the query: it holds rows only for values that are open, and closing an answer removes them.

Cost: opening takes time in proportion to what is derived for its values, unless they are derived for others already. In
the same way a change of the facts costs time for the answers that it concerns. Small changes and openings run as
compiled programs, if two columns at most are joined or kept beside them.

Not guaranteed: that an opening is cheaper than full evaluation; if its answer needs all of a relation, it is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from ikebana.datalog import explaining, functors
from ikebana.datalog.collections import Facts, columns_of, filtered
from ikebana.datalog.magic import MagicProgram, rewrite
from ikebana.datalog.orders import IndexChoice
from ikebana.datalog.planner import Planner
from ikebana.datalog.questions import Question, parse_question
from ikebana.datalog.storage import Storage
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.prepared import KEEP, Binding, Prepared
from ikebana.engine.prepared_reads import Values
from ikebana.engine.views import View
from ikebana.errors import DatalogError
from ikebana.operators.join import JoinColumns
from ikebana.operators.row_errors import BINDING
from ikebana.plan import ir

if TYPE_CHECKING:
    from ikebana.datalog.program import Program

Row = tuple[int | float | str, ...]

Seeds = Callable[[Sequence[str]], Collection]
"""A function that returns the bound arguments of all openings, under the names that it is given."""

_numbers = itertools.count(1)


class _Answers:
    """The collection with the answers of a question: how it is planned, and what its columns mean."""

    def __init__(self, program: Program, question: Question) -> None:
        self.question, self._program = question, program
        derived = [name for name, rules in program.checked.rules_by_head.items() if rules]
        self.rewriting: MagicProgram = rewrite(program.checked, question.relation.name, question.adornment, derived)
        self.planner: Planner | None = None

    def relation(self, seeds: Seeds | None) -> tuple[Collection, tuple[str, ...]]:
        """The rows that answers consist of, and their columns; without `seeds`, no argument is bound."""
        rewriting = self.rewriting
        if rewriting.is_magic and seeds is not None:
            self.planner = self._planned(seeds)
            rows, columns = _unstored(self.planner.relation(rewriting.answer)), self.planner.columns(rewriting.answer)
        else:
            rows, columns = self._in_full(rewriting.answer)
        return self._selected(rows, columns), columns

    def _selected(self, rows: Collection, columns: Sequence[str]) -> Collection:
        """The rows in which free arguments of one name are equal."""
        kinds = [self._program.storage.type(kind) for kind in self.question.relation.types]
        conditions = [
            functors.compared(
                "=", functors.column(columns[one], kinds[one]), functors.column(columns[other], kinds[other])
            )
            for one, other in self.question.equal
        ]
        return filtered(rows, conditions)

    def _in_full(self, name: str) -> tuple[Collection, tuple[str, ...]]:
        """A relation of the program; it is installed, so that it is shared."""
        planner = self._program.planner
        if self._program.checked.rules_by_head[name]:
            self._program.relation(name)
        return planner.relation(name), planner.columns(name)

    def _planned(self, seeds: Seeds) -> Planner:
        """The plan of the rewritten program, over the facts of the program and the seeds."""
        rewriting, program = self.rewriting, self._program
        seed = rewriting.program.relations[rewriting.seed]
        columns = columns_of(seed)
        facts = {rewriting.seed: Facts(seeds(columns).distinct(), columns)}
        facts |= {name: program.facts[base] for base, name in rewriting.facts.items()}
        for name in rewriting.program.relations:
            if name in program.checked.relations and name not in facts:
                facts[name] = Facts(*self._in_full(name))
        choice = IndexChoice(keeps_order=True)
        return Planner(rewriting.program, program.storage, facts, exported=[rewriting.answer], choice=choice)


def _unstored(rows: Collection) -> Collection:
    """The rows of an arrangement before they were arranged: they are needed by other columns."""
    node = rows.node
    if isinstance(node, ir.AsStream) and isinstance(node.source, ir.Arrange):
        return Collection(node.source.source)
    return rows


class Answer(Binding):
    """The answer to a question for some values, kept up to date."""

    _query: Query

    @property
    def values(self) -> dict[str, Any]:
        """The values of the parameters."""
        return self._query.values_of(self.bound)

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The answer as an Arrow table, at the last closed epoch or at one that is held: rows of the relation."""
        return self._query.completed(super().to_arrow(at, timeout=timeout), self.bound)

    def rows(self, *, timeout: float | None = None) -> set[Row]:
        """The answer as a set of tuples."""
        return rows_of_table(self.to_arrow(timeout=timeout))

    def changes(  # type: ignore[override]
        self, since: str | None = None, *, timeout: float | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """An iterator of (epoch, Arrow table with a column `diff`): like `View.changes`, of this answer alone."""
        changes = super().changes(since, timeout=timeout)
        return map(lambda item: (item[0], self._query.completed(item[1], self.bound)), changes)


class Query(Prepared[Answer]):
    """A question with bound arguments to a program. See `Program.query`."""

    kind = "query"
    error = DatalogError

    def __init__(self, program: Program, question: Question, keep: int = KEEP) -> None:
        """Install a question; `keep` is how many sets of values stay open after `read`."""
        self.question, self._storage, self._program = question, program.storage, program
        engine, name = program.engine, f"{program.name}: {question.text} {next(_numbers)}"
        fields = [pa.field(name, self._storage.type(kind), False) for name, kind in question.types.items()]
        table = engine.table(
            f"parameters of {name}", [pa.field(BINDING, pa.int64(), False), *fields], kind="stream", durable=False
        )
        try:
            self._answers = _Answers(program, question)
            view = engine.install(name, self._joined(table))
        except BaseException:
            engine.drop_table(table.name)
            raise
        super().__init__(engine, name, fields, table, view, keep)

    def _joined(self, parameters: Collection) -> Arrangement:
        """The answers, arranged by the number of the opening."""
        question, places = self.question, sorted(self.question.bound)

        def seeds(names: Sequence[str]) -> Collection:
            return parameters.select(**{name: question.bound[at] for name, at in zip(names, places, strict=True)})

        rows, columns = self._answers.relation(seeds)
        keys = [columns[place] for place in places]
        given = parameters.select(BINDING, **{key: question.bound[at] for key, at in zip(keys, places, strict=True)})
        free = [place for place in question.shown if place not in question.bound] or places[:1]
        kept = tuple((_column(place), columns[place]) for place in free)
        names = (BINDING, *(name for name, _ in kept))
        result = JoinColumns(names, ((BINDING, BINDING),), kept)
        left, right = given.arrange(*keys), rows.arrange(*keys)
        joined = Collection(ir.make(ir.Join, left=left.node, right=right.node, result=result))
        return joined.distinct(BINDING).arrange(BINDING) if question.left_out else joined.arrange(BINDING)

    @property
    def rewriting(self) -> MagicProgram:
        """The rewritten program."""
        return self._answers.rewriting

    def explain(self) -> str:
        """Whether magic sets are used, the rewritten rules, the relations evaluated in full and why, and the plan."""
        planner = self._answers.planner
        return str(self.rewriting) if planner is None else f"{self.rewriting}\n{explaining.explain(planner)}"

    # Values.

    def _bound(self, values: dict[str, Any]) -> Values:
        """The checked values of all parameters, as they are stored, and the constants."""
        question = self.question
        if values.keys() != set(question.parameters):
            raise _wrong_values(question, values)
        all_values = {**values, **question.constants}
        return {name: self._stored(name, all_values[name]) for name in question.types}

    def _stored(self, name: str, value: Any) -> pa.Array:
        _check_value(self.question, name, value, self._storage)
        return pa.array([self._storage.value(value)], self._storage.type(self.question.types[name]))

    def values_of(self, bound: Values) -> dict[str, Any]:
        """The values of the parameters, as users see them."""
        names = self.question.parameters
        table = pa.table([bound[name] for name in names], names)
        return self._storage.decoded(table, [self.question.types[name] for name in names]).to_pylist()[0]

    def _release(self) -> None:
        super()._release()
        self._program.forget(self)

    # Answers.

    def _binding(self, number: int, values: Values) -> Answer:
        return Answer(self, number, values)

    def _read(self, bound: Values, deadline: Any) -> pa.Table:
        return self.completed(super()._read(bound, deadline), bound)

    def completed(self, rows: pa.Table, bound: Values) -> pa.Table:
        """Rows with the columns that are equal in all rows of an answer, with values as users see them."""
        question = self.question
        arrays = [
            pa.repeat(bound[question.bound[place]][0], rows.num_rows)
            if place in question.bound
            else rows[_column(place)]
            for place in question.shown
        ]
        return _shown(question, arrays, rows, self._storage)


class WholeQuery:
    """A question without bound arguments: its answer is a part of the relation, which is evaluated in full."""

    def __init__(self, program: Program, question: Question) -> None:
        self.question, self._storage, self._program = question, program.storage, program
        self._answers = _Answers(program, question)
        rows, columns = self._answers.relation(None)
        selected = rows.select(**{_column(place): columns[place] for place in question.shown})
        if question.left_out:
            selected = selected.distinct()
        self.name = f"{program.name}: {question.text} {next(_numbers)}"
        self.view: View = program.engine.install(self.name, selected)

    @property
    def rewriting(self) -> MagicProgram:
        """That nothing is rewritten, and why."""
        return self._answers.rewriting

    def explain(self) -> str:
        """That the relation is evaluated in full, and why."""
        return str(self.rewriting)

    def open(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> WholeAnswer:
        """The answer, which is kept up to date. There are no parameters; `timeout` is ignored."""
        self._check({**(given or {}), **values})
        return WholeAnswer(self)

    def open_many(self, many: Iterable[Mapping[str, Any]], *, timeout: float | None = None) -> list[WholeAnswer]:
        """The answer as often as there are mappings, which are empty."""
        return [self.open(values) for values in many]

    def read(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> pa.Table:
        """The answer now, as an Arrow table; `timeout` limits the seconds that reading may take."""
        return self.open(given, **values).to_arrow(timeout=values.get("timeout"))

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until the answer is complete."""
        self.view.wait(self._program.engine.epoch - 1, timeout=timeout)

    def _check(self, values: Mapping[str, Any]) -> None:
        if values.keys() - {"timeout"}:
            raise _wrong_values(self.question, values)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Rows with values as users see them."""
        return _shown(self.question, [rows[_column(place)] for place in self.question.shown], rows, self._storage)

    def close(self) -> None:
        """Stop maintaining the answer; closing twice does nothing."""
        self.view.drop()
        self._program.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class WholeAnswer:
    """The answer to a question without bound arguments."""

    def __init__(self, query: WholeQuery) -> None:
        self._query = query

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The answer as an Arrow table, at the last closed epoch or at one that is held."""
        return self._query.shown(self._query.view.to_arrow(at, timeout=timeout))

    def rows(self, *, timeout: float | None = None) -> set[Row]:
        """The answer as a set of tuples."""
        return rows_of_table(self.to_arrow(timeout=timeout))

    def changes(self, since: str | None = None, *, timeout: float | None = None) -> Iterator[tuple[int, pa.Table]]:
        """An iterator of (epoch, Arrow table with a column `diff`); see `View.changes`."""
        changes = self._query.view.changes(since, timeout=timeout)
        return map(lambda item: (item[0], self._query.shown(item[1])), changes)

    def close(self) -> None:
        """Does nothing: the answer belongs to the query."""


def query(program: Program, text: str, values: Mapping[str, Any], *, keep: int = KEEP) -> Query | WholeQuery:
    """Prepare a question. See `Program.query`."""
    question = parse_question(text, program.checked.relations, program.storage)
    if not values.keys() <= set(question.parameters):
        raise _wrong_values(question, values)
    for name, value in values.items():
        _check_value(question, name, value, program.storage)
    question = question.with_constants(values)
    return Query(program, question, keep) if question.bound else WholeQuery(program, question)


def _check_value(question: Question, name: str, value: Any, storage: Storage) -> None:
    """Raise unless a parameter can have a value."""
    kind = question.types[name]
    is_of_type = isinstance(value, _PYTHON_TYPES[kind]) and not isinstance(value, bool)
    if not is_of_type or not storage.fits(value, kind):
        raise DatalogError(
            f'query "{question.text}" cannot be opened with {name} = {value!r}', detail=f"{name} is a {kind}"
        )


def _wrong_values(question: Question, values: Mapping[str, Any]) -> DatalogError:
    return DatalogError(
        f'query "{question.text}" cannot be opened with {", ".join(sorted(values)) or "no values"}',
        detail=f"its parameters are {', '.join(question.parameters) or 'none'}",
        hint="give a value to each of its parameters, and to nothing else",
    )


def _column(place: int) -> str:
    """The name of an argument's column in the views of questions."""
    return f"argument {place}"


def _shown(question: Question, arrays: Sequence[Any], rows: pa.Table, storage: Storage) -> pa.Table:
    """The arguments of an answer under their names, and the column `diff`, if the rows are changes."""
    names = [question.relation.attributes[place] for place in question.shown]
    table = storage.decoded(pa.table(arrays, names), [question.relation.types[place] for place in question.shown])
    return table.append_column("diff", rows["diff"]) if "diff" in rows.column_names else table


def rows_of_table(table: pa.Table) -> set[Row]:
    """The rows of a table with at least one column."""
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))


_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "number": int,
    "unsigned": int,
    "float": (int, float),
    "symbol": str,
}
