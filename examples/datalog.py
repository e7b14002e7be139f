"""Who may read what, and why? Rules over groups and grants, kept up to date while both change. Takes a second.

Groups are nested, folders are nested, grants to a group hold for all its members and for everything below a folder,
and a ban overrides them. Each change is printed with what it changes in the answer; then the program is asked about one
person, and why a row is there.
"""

from __future__ import annotations

from ikebana import Engine, datalog

RULES = """
.decl member(person: symbol, group: symbol)         // facts
.decl part(inner: symbol, outer: symbol)            // a group in a group
.decl below(inner: symbol, outer: symbol)           // a folder in a folder
.decl grant(group: symbol, folder: symbol)
.decl banned(person: symbol)

.decl belongs(person: symbol, group: symbol)
belongs(p, g) :- member(p, g).
belongs(p, g) :- belongs(p, h), part(h, g).

.decl covers(group: symbol, folder: symbol)
covers(g, f) :- grant(g, f).
covers(g, f) :- covers(g, outer), below(f, outer).

.decl may_read(person: symbol, folder: symbol)
may_read(p, f) :- belongs(p, g), covers(g, f), !banned(p).

.decl readers(folder: symbol, n: number)
readers(f, n) :- covers(_, f), n = count : { may_read(_, f) }.
"""

FACTS = {
    "member": [("ann", "kernel"), ("bob", "docs"), ("cleo", "staff")],
    "part": [("kernel", "engineering"), ("docs", "engineering"), ("engineering", "staff")],
    "below": [("designs", "internal"), ("salaries", "internal")],
    "grant": [("engineering", "designs")],
}

CHANGES = [
    ("staff may read everything internal", "insert", "grant", ("staff", "internal")),
    ("bob is banned", "insert", "banned", ("bob",)),
    ("engineering leaves staff", "remove", "part", ("engineering", "staff")),
]


def main() -> None:
    with Engine() as engine:
        program = datalog.load(engine, RULES)
        with program.transaction():
            for relation, rows in FACTS.items():
                program.insert(relation, rows)
        may_read = program.relation("may_read")
        print(f"at first: {shown(may_read.rows())}")
        for what, operation, relation, row in CHANGES:
            before = may_read.rows()
            getattr(program, operation)(relation, [row])
            after = may_read.rows()
            print(f"{what}: + {shown(after - before)}  - {shown(before - after)}")
        print(f"readers: {shown(program.relation('readers').rows())}")
        with program.query("may_read(person, ?)") as question:
            print(f"what ann may read: {shown(question.open(person='ann').rows())}")
        print(program.why('may_read("ann", "designs")'))
        print(program.why_not('may_read("bob", "designs")'))


def shown(rows: set[tuple[int | float | str, ...]]) -> str:
    """Rows in order, on one line."""
    return ", ".join(" ".join(map(str, row)) for row in sorted(rows)) or "nothing"


if __name__ == "__main__":
    main()
