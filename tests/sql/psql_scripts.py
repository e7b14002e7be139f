"""Scripts of psql, read as statements and queries that Spark may understand.

`script(text)` splits a script of psql: comments go, commands of psql go together with the statement that they end, the
rows that follow COPY ... FROM STDIN become an INSERT. What remains is put into Spark's dialect as far as a word or a
sign is enough: names of types, quoted identifiers, raw strings, regular expressions, `generate_series` in FROM, what is
said to a planner. Nothing is understood beyond that: what Spark does not accept afterwards is left out by whoever runs
it. EXPLAIN of a query is that query.

COPY of a file is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.sql.logic_files import Record

TYPES = {"integer": "int", "int2": "smallint", "int4": "int", "int8": "bigint", "float4": "float", "real": "float"}
TYPES |= {"float8": "double", "float": "double", "text": "string", "varchar": "string", "char": "string"}
TYPES |= {"bpchar": "string", "name": "string", "bool": "boolean", "double precision": "double"}
TYPES |= {"character varying": "string", "character": "string", "bytea": "binary"}
TYPES |= {
    "timestamptz": "timestamp",
    "timestamp with time zone": "timestamp",
    "timestamp without time zone": "timestamp",
}
TYPES |= {name: name for name in ("int", "smallint", "bigint", "boolean", "date", "timestamp")}
DECIMAL = "decimal(38, 10)"
"""What a number of any precision becomes."""

_TYPE = "|".join(sorted([*TYPES, "numeric", "decimal"], key=len, reverse=True)).replace(" ", r"\s+")
_SIZED = rf"(?P<type>{_TYPE})\b(?:\s*(?P<size>\([\d\s,]+\)))?"

_PIECES = re.compile(
    r"""(?P<comment>--[^\n]*)
      | (?P<string>\b[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*')
      | (?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<name>"(?:[^"]|"")*")
      | (?P<command>\\[^\n]*)
      | (?P<sign>[;()])
      | (?P<word>\w+)
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_NESTED_COMMENT = re.compile(r"/\*(?:(?!/\*|\*/).)*\*/", re.DOTALL)
_MARK = "\x00"
"""Stands for a literal while words around it are replaced."""


def script(text: str) -> Iterator[Record]:
    """The statements and queries of a script, in Spark's dialect, with the lines that they begin at."""
    for line, statement, data in statements(text):
        statement = re.sub(r"^explain\s*(\([^)]*\))?(\s*(analyze|verbose)\b)*", "", statement, flags=re.I).strip()
        if copied := re.match(r"copy\s+(\w+)\s*(\([\w\s,]+\))?\s+from\s+(.*)", statement, re.I | re.S):
            if data:
                yield Record(line, f"insert into {copied[1]} {copied[2] or ''} {_copied(data, copied[3])}")
        elif re.match(r"[\s(]*(select|with|values|table)\b", statement, re.I):
            if into := re.fullmatch(r"(select\b.*?)\binto\s+(?:temp\s+|table\s+)*(\w+)(.*)", statement, re.I | re.S):
                yield Record(line, f"create table {into[2]} as {spark_dialect(into[1] + into[3])}")
            else:
                yield Record(line, spark_dialect(statement), ())
        elif statement:
            yield Record(line, spark_dialect(statement))


def statements(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Statements as they are written, without comments, with their lines and the rows that follow them."""
    while comment := _NESTED_COMMENT.search(text):  # lines keep their numbers
        text = text[: comment.start()] + "\n" * comment[0].count("\n") + text[comment.end() :]
    pieces: list[str] = []
    at = depth = first = 0
    while at < len(text):
        piece = _PIECES.match(text, at)
        assert piece is not None
        at = piece.end()
        if piece.lastgroup == "command":
            pieces, depth = [], 0
        elif piece[0] == ";" and depth <= 0:
            statement, data = "".join(pieces).strip(), list[str]()
            if re.match(r"copy\b.*\bfrom\s+stdin\b", statement, re.I | re.S):
                end = text.index("\n\\.", at)
                data, at = text[at:end].splitlines()[1:], text.index("\n", end + 1)
            if statement:
                yield text.count("\n", 0, first) + 1, statement, data
            pieces, depth = [], 0
        elif piece.lastgroup != "comment":
            depth += {"(": 1, ")": -1}.get(piece[0], 0)
            if not "".join(pieces).strip():
                first = piece.start() if piece[0].strip() else piece.end()
            pieces.append(piece[0])


def _copied(rows: list[str], how: str) -> str:
    """Rows as they are in a script, as VALUES of strings."""
    null = re.search(r"\bnull\s+'(.*?)'", how, re.I)
    absent = null[1] if null else "\\N"
    values = [["null" if value == absent else f"'{value}'" for value in row.split("\t")] for row in rows]
    return "values " + ", ".join(f"({', '.join(row)})" for row in values)


def spark_type(name: str, size: str | None = None) -> str:
    """A type of PostgreSQL's as Spark's; it raises KeyError if there is none."""
    name = " ".join(name.lower().split())
    if name in ("numeric", "decimal"):
        return f"decimal{size}" if size and "," in size else f"decimal({size.strip('()')}, 0)" if size else DECIMAL
    return TYPES[name]


def spark_dialect(text: str) -> str:
    """A statement with words and signs as Spark has them."""
    literals: list[str] = []
    words: list[str] = []
    for piece in _PIECES.finditer(text):
        if piece.lastgroup in ("string", "name"):
            literals.append(_literal(piece[0]))
            words.append(_MARK)
        else:
            words.append(piece[0])
    text = "".join(words)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    parts = text.split(_MARK)
    return parts[0] + "".join(literal + part for literal, part in zip(literals, parts[1:], strict=True))


def _literal(text: str) -> str:
    """A string or a quoted name as Spark writes it."""
    if text.startswith('"'):
        return "`" + text[1:-1].replace('""', '"') + "`"
    if text[0] in "eE":
        return text[1:]
    return f"r{text}" if "\\" in text and "''" not in text else text


def _cast_type(match: re.Match[str]) -> str:
    return match["before"] + spark_type(match["type"], match["size"]) + match["after"]


def _series(match: re.Match[str]) -> str:
    before = match.string[: match.start()].lower()
    if match["before"] == "," and before.rfind("from") < before.rfind("select"):
        return match[0]
    name = match["column"] or match["name"] or "generate_series"
    table = match["name"] or "generate_series"
    numbers = re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", match["bounds"])
    if numbers:
        rows = f"select cast(id as int) as {name} from range({numbers[1]}, {int(numbers[2]) + 1})"
    else:
        rows = f"select explode(sequence({match['bounds']})) as {name}"
    return f"{match['before']} ({rows}) as {table}"


_REPLACED = [
    (re.compile(rf"(?P<before>::\s*){_SIZED}(?P<after>)", re.I), _cast_type),
    (re.compile(rf"(?P<before>\bas\s+){_SIZED}(?P<after>\s*\))", re.I), _cast_type),
    (
        re.compile(rf"(?<![:\w.])(?P<type>{_TYPE})\s*{_MARK}", re.I),
        lambda match: f"cast({_MARK} as {spark_type(match['type'])})",
    ),
    (
        re.compile(
            r"(?P<before>\bfrom|,|\bjoin|\blateral)\s*generate_series\s*\((?P<bounds>[-\w\s,]+)\)"
            r"(?!\s*with)(?:\s+(?:as\s+)?(?!on\b|where\b|group\b|order\b|left\b|join\b|limit\b|union\b|cross\b|inner\b)"
            r"(?P<name>\w+)(?:\s*\((?P<column>\w+)\))?)?",
            re.I,
        ),
        _series,
    ),
    (re.compile(r"\bgenerate_series\s*\(([-\w\s,]+)\)", re.I), r"explode(sequence(\1))"),
    (re.compile(r"\busing\s*(<|>)", re.I), lambda match: "asc" if match[1] == "<" else "desc"),
    (re.compile(r"!~(?=\s*\x00)"), " not rlike "),
    (re.compile(r"(?<![!@<>~=*|&])~(?=\s*\x00)"), " rlike "),
    (re.compile(r"\bas\s+(not\s+)?materialized\b", re.I), "as"),
    (re.compile(r"\bfrom\s+only\b", re.I), "from"),
]
