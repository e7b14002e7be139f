"""Small C programs with known answers, which their comments state.

`// null A` marks a line that assigns null, under the name A. `// reached by A B` marks a line with a dereference that
the nulls A and B may reach. A dereference without such a comment is reached by none.
"""

from __future__ import annotations

import re

Finding = tuple[int, int]

PROGRAMS = {
    "assignments": """
        int assignments(int *other) {
            int *p = 0;             // null A
            int *q = p;
            int *r = q;
            other = other + 1;
            return *r               // reached by A
                + *other;
        }
    """,
    "order of statements does not matter": """
        int cycle(int *a, int n) {
            int *b, *c;
            while (n--) {
                c = b;
                b = a;
                a = c;
            }
            n = *c;                 // reached by A
            b = ((void *)0);        // null A
            return n;
        }
    """,
    "arguments": """
        static int read(int *p) {
            return *p;              // reached by A
        }
        static int safe(int *p) {
            return *p;
        }
        int x;
        int arguments(void) {
            return read(0)          // null A
                + safe(&x);
        }
    """,
    "results": """
        int *find(int *table, int n) {
            if (n < 0)
                return 0;           // null A
            return table + n;
        }
        int results(int *table) {
            int *p = find(table, 3);
            return p[0]             // reached by A
                + table[0];
        }
    """,
    "two levels of calls": """
        int *inner(int *p) { return p; }
        int *outer(int *p) { return inner(p); }
        int levels(int *q) {
            int *p = outer(0);      // null A
            return *p               // reached by A
                + *q;
        }
    """,
    "pointers to pointers": """
        int indirect(int *p) {
            int **pp = &p;
            int *q, *r;
            *pp = 0;                // null A
            q = p;
            r = *pp;                // p is not null itself: pp is dereferenced
            return *q               // reached by A
                + *r;               // reached by A
        }
    """,
    "two aliases": """
        int aliases(int **a) {
            int **b = a, *p;
            int *x, **c = &x;
            *b = 0;                 // null A
            p = *a;
            x = &**c;               // reached by none
            return *p               // reached by A
                + *x;
        }
    """,
    "memory of calls": """
        void clear(int **p) {
            *p = 0;                 // null A
        }
        int x;
        int memory(void) {
            int *p = &x, *q = &x;
            clear(&p);
            return *p               // reached by A
                + *q;
        }
    """,
    "fields": """
        struct node { struct node *next; int *value; };
        void start(struct node *n) {
            n->next = 0;            // null A
        }
        int sum(struct node *n, struct node m) {
            int total = 0;
            m.value = &total;
            total += *m.value;
            total += m.next->value  // reached by A
                [0];
            return total + *n->value;
        }
    """,
    "initialisers": """
        struct pair { int *left, *right; };
        int one;
        struct pair both = { .right = 0, .left = &one };    // null A
        int *table[2] = { &one, 0 };                        // null B
        int initialisers(int i) {
            return *both.left
                + *both.right       // reached by A
                + *table[i];        // reached by B
        }
    """,
    "conditions": """
        int choose(int c, int *p) {
            int *q = c ? p
                : 0;                // null A
            int *r = (c, p);
            if (q == 0)
                return *r;
            return *q;              // reached by A
        }
    """,
    "allocation": """
        void *malloc(unsigned long);
        int allocation(void) {
            int **box = malloc(8);
            int **other = box, **different = malloc(8);
            *other = 0;             // null A
            return **box            // reached by A
                + **different;
        }
    """,
    "library functions": """
        char *strchr(const char *, int);
        int library(void) {
            char *text = 0;         // null A
            return *strchr(text, 1) // reached by A
                ;
        }
    """,
    "numbers are not null": """
        int numbers(int n) {
            int zero = 0;
            int *p = (int *)1;
            n = zero;
            return *p + n;
        }
    """,
    "macros": """
        #define NOTHING ((void *)0)
        #define FIRST(p) (*(p))
        int macros(void) {
            int *p = NOTHING;       // null A
            int *q = NULL;          // null B
            return FIRST(p)         // reached by A
                + FIRST(q);         // reached by B
        }
    """,
    "functions without declarations": """
        #include "there_is_no_such_header.h"
        int undeclared(void) {
            int *p = lookup("name");
            consume(0);
            return *p;              // reached by A
        }
        int *lookup(char *name) {
            return 0;               // null A
        }
    """,
    "shadowed names": """
        int shadow(int *p) {
            { int *p = 0; }         // null A
            { int *p; return *p; }
            return *p;
        }
    """,
    "static variables": """
        static int *last;
        void forget(void) {
            last = 0;               // null A
        }
        int remember(void) {
            static int *last_but_one;
            last_but_one = last;
            return *last_but_one;   // reached by A
        }
    """,
    "statement expressions": """
        int statements(int *p) {
            int *q = ({ int *r = 0; // null A
                r; });
            return *q               // reached by A
                + sizeof *q + *p;
        }
    """,
}


def expected(source: str) -> set[Finding]:
    """The pairs of lines (of the null, of the dereference) that the comments of a program state."""
    nulls: dict[str, int] = {}
    uses: list[tuple[int, str]] = []
    for row, line in enumerate(source.splitlines(), 1):
        if match := re.search(r"// null (\w+)", line):
            nulls[match[1]] = row
        if match := re.search(r"// reached by ([A-Z ]+)$", line):
            uses += [(row, name) for name in match[1].split()]
    return {(nulls[name], row) for row, name in uses}
