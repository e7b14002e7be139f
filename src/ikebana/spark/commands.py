"""The SQL statements of a session, taken apart: what `Session.sql` does itself, and what it leaves to Spark.

    parse("CREATE MATERIALIZED VIEW late AS SELECT ...")     -> CreateView("late", "SELECT ...")
    parse("INSERT INTO orders VALUES (1, 'new')")            -> Insert("orders", (), "VALUES (1, 'new')")
    parse("SELECT * FROM late")                              -> Query("SELECT * FROM late")

Only what is needed to recognise a statement is parsed here: its keywords and names. Queries, conditions and types stay
text, which Spark parses. Keywords may be in any case, names in backticks; comments are skipped. A statement may end in
a semicolon; several statements in one text are refused by Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ikebana.errors import SqlError
from ikebana.spark.naming import quote

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<word>\w+)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUERY_WORDS = {"SELECT", "WITH", "VALUES", "FROM", "TABLE"}
_STATEMENTS = (
    "a query, CREATE [OR REPLACE] MATERIALIZED VIEW name AS query, CREATE TABLE name (column type, ..., PRIMARY KEY "
    "(column, ...)), INSERT INTO name VALUES ... or SELECT ..., DELETE FROM name WHERE ..., DROP VIEW name, DROP TABLE "
    "name, SHOW TABLES, SHOW VIEWS, EXPLAIN query"
)


@dataclass(frozen=True, slots=True)
class Query:
    """A query to be answered once."""

    text: str


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS]."""

    name: str
    query: str
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE [IF NOT EXISTS]: `columns` is DDL without the primary key, which is `key`."""

    name: str
    columns: str
    key: tuple[str, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO: `columns` are those that are listed after the name of the table; none means all."""

    table: str
    columns: tuple[str, ...]
    query: str


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM; without a condition, all rows."""

    table: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP VIEW or DROP TABLE: `kind` is "view" or "table"."""

    kind: str
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW TABLES or SHOW VIEWS: `kind` is "tables" or "views"."""

    kind: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN a query, as a view would maintain it."""

    query: str


Command = Query | CreateView | CreateTable | Insert | Delete | Drop | Show | Explain


def parse(text: str) -> Command:
    """The statement of a text; raises a `SqlError` if it is none that a session runs.

    >>> parse("drop view if exists `late orders`;")
    Drop(kind='view', name='late orders', if_exists=True, cascade=False)
    >>> parse("create table t (id BIGINT PRIMARY KEY, name STRING)")
    CreateTable(name='t', columns='id BIGINT, name STRING', key=('id',), if_not_exists=False)
    """
    if not isinstance(text, str):
        raise SqlError(f"a value of type {type(text).__name__} is not SQL", hint="give the statement as a string")
    return _Parser(text).command()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Parser:
    """Reads the tokens of one statement from left to right."""

    def __init__(self, text: str) -> None:
        tokens = [_Token(str(m.lastgroup), m[0], m.start()) for m in _TOKEN.finditer(text)]
        self._tokens = [token for token in tokens if token.kind != "space"]
        while self._tokens and self._tokens[-1].text == ";":
            self._tokens.pop()
        last = self._tokens[-1] if self._tokens else None
        self._text, self._at = text[: last.start + len(last.text)] if last else "", 0

    def command(self) -> Command:
        if self._starts_query():
            return Query(self._rest("a query"))
        if self._accepts("CREATE"):
            return self._create()
        if self._accepts("INSERT"):
            return self._insert()
        if self._accepts("DELETE"):
            return self._delete()
        if self._accepts("DROP"):
            return self._drop()
        if self._accepts("SHOW"):
            return self._show()
        if self._accepts("EXPLAIN"):
            return Explain(self._rest("a query"))
        raise self._error("a session does not run this statement")

    # Statements.

    def _create(self) -> Command:
        replace = self._accepts("OR", "REPLACE")
        if self._accepts("MATERIALIZED", "VIEW"):
            if_not_exists, name = self._accepts("IF", "NOT", "EXISTS"), self._name()
            self._expect("AS")
            return CreateView(name, self._rest("a query"), replace, if_not_exists)
        if self._accepts("VIEW") or self._accepts("TEMPORARY") or self._accepts("TEMP"):
            raise self._error(
                "a session keeps materialized views only",
                hint="write CREATE MATERIALIZED VIEW, or run spark.sql() for a view that Spark computes anew",
            )
        if replace or not self._accepts("TABLE"):
            raise self._error("a session creates tables and materialized views only")
        return self._create_table()

    def _create_table(self) -> CreateTable:
        if_not_exists, name = self._accepts("IF", "NOT", "EXISTS"), self._name()
        items = [_without_constraint_name(tokens) for tokens in self._items()]
        self._end()
        keys = [_names(tokens[2:]) for tokens in items if _words(tokens[:2]) == ["PRIMARY", "KEY"]]
        columns = [tokens for tokens in items if _words(tokens[:2]) != ["PRIMARY", "KEY"]]
        keys += [_names(tokens[:1]) for tokens in columns if _words(tokens[-2:]) == ["PRIMARY", "KEY"]]
        if len(keys) > 1:
            raise self._error(
                f"table {name!r} has {len(keys)} primary keys",
                hint="for one key of two columns, write PRIMARY KEY (a, b)",
            )
        return CreateTable(name, ", ".join(map(self._column, columns)), keys[0] if keys else (), if_not_exists)

    def _column(self, tokens: list[_Token]) -> str:
        """The text of a column's definition, without PRIMARY KEY at its end."""
        own = tokens[:-2] if _words(tokens[-2:]) == ["PRIMARY", "KEY"] else tokens
        return self._text[own[0].start : own[-1].start + len(own[-1].text)] if own else ""

    def _insert(self) -> Insert:
        self._expect("INTO")
        self._accepts("TABLE")
        name = self._name()
        columns: tuple[str, ...] = ()
        if self._is("(") and not self._starts_query():
            items = self._items()
            if any(len(tokens) != 1 for tokens in items):
                raise self._error("the columns of INSERT are names, separated by commas")
            columns = _names([tokens[0] for tokens in items])
        return Insert(name, columns, self._rest("VALUES or a query"))

    def _delete(self) -> Delete:
        self._expect("FROM")
        name = self._name()
        if self._at == len(self._tokens):
            return Delete(name)
        self._expect("WHERE")
        return Delete(name, self._rest("a condition"))

    def _drop(self) -> Drop:
        kind = "table" if self._accepts("TABLE") else "view"
        if kind == "view":
            self._accepts("MATERIALIZED")
            self._expect("VIEW")
        if_exists, name = self._accepts("IF", "EXISTS"), self._name()
        cascade = kind == "table" and self._accepts("CASCADE")
        self._end()
        return Drop(kind, name, if_exists, cascade)

    def _show(self) -> Show:
        kind = "tables" if self._accepts("TABLES") else "views"
        if kind == "views":
            self._accepts("MATERIALIZED")
            self._expect("VIEWS")
        self._end()
        return Show(kind)

    # Tokens.

    def _is(self, *words: str) -> bool:
        """Whether these words or signs are next."""
        following = self._tokens[self._at : self._at + len(words)]
        return [token.text.upper() for token in following] == list(words)

    def _accepts(self, *words: str) -> bool:
        """Skip these words, if they are next."""
        if not self._is(*words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._accepts(word):
            raise self._error(f"{word} is expected {self._place()}")

    def _end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error(f"nothing more is expected {self._place()}")

    def _name(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.kind not in ("word", "quoted"):
            raise self._error(f"a name is expected {self._place()}")
        self._at += 1
        if self._is("."):
            raise self._error(
                "names of tables and views have one part",
                hint=f"leave out {token.text!r} and the dot, or write a name that has a dot in backticks",
            )
        return _name_of(token)

    def _items(self) -> list[list[_Token]]:
        """The tokens of a list in parentheses, between its commas."""
        self._expect("(")
        items: list[list[_Token]] = [[]]
        depth = 1
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(token.text, 0)
            if depth == 0:
                break
            if token.text == "," and depth == 1:
                items.append([])
            else:
                items[-1].append(token)
        if depth or not all(items):
            raise self._error("a list in parentheses is not complete")
        return items

    def _starts_query(self) -> bool:
        """Whether a query is next, possibly in parentheses."""
        following = next((token for token in self._tokens[self._at :] if token.text != "("), None)
        return following is not None and following.text.upper() in _QUERY_WORDS

    def _rest(self, what: str) -> str:
        """The text from the next token on."""
        if self._at == len(self._tokens):
            raise self._error(f"{what} is expected at the end")
        return self._text[self._tokens[self._at].start :]

    def _place(self) -> str:
        if self._at == len(self._tokens):
            return "at the end"
        return f"before {self._tokens[self._at].text!r}"

    def _error(self, what: str, hint: str = "") -> SqlError:
        return SqlError(what, detail=_shortened(self._text), hint=hint or f"a session runs: {_STATEMENTS}")


def _name_of(token: _Token) -> str:
    """A name without its backticks."""
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _names(tokens: list[_Token]) -> tuple[str, ...]:
    return tuple(_name_of(token) for token in tokens if token.kind in ("word", "quoted"))


def _words(tokens: list[_Token]) -> list[str]:
    return [token.text.upper() for token in tokens]


def _without_constraint_name(tokens: list[_Token]) -> list[_Token]:
    return tokens[2:] if _words(tokens[:1]) == ["CONSTRAINT"] else tokens


def _shortened(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return f"{line[:most]} ..." if len(line) > most else line


def select_rows(table: str, condition: str) -> str:
    """A query for the rows of a table that meet a condition; all rows if it is empty.

    The condition is in parentheses, so that it cannot be more than that, and may end in a comment.
    """
    where = f" WHERE (\n{condition}\n)" if condition else ""
    return f"SELECT * FROM {quote(table)}{where}"
