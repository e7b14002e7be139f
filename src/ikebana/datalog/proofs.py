"""Proofs: the answers of `why` and `why_not`, as trees, text, dictionaries and JSON.

    tc(1, 3)    tc(x, z) :- tc(x, y), edge(y, z).
    ├─ tc(1, 2)    tc(x, y) :- edge(x, y).
    │  └─ edge(1, 2)
    └─ edge(2, 3)

The proof of a fact that is used several times is shown where it comes first. Proofs may be deeper than Python's stack,
so nothing here is recursive. Cost: in proportion to the text.

`ikebana.datalog.why` computes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Proof:
    """A fact, and why it holds: the rule and its premises, or no rule if the fact was inserted."""

    fact: str
    height: int
    rule: str | None = None
    premises: tuple[Proof | str, ...] = ()
    """Proofs of the atoms, and the conditions that hold, with values in place of variables."""
    is_repeated: bool = False
    """Whether the proof of the fact is found earlier in the tree, and left out here."""

    def to_dict(self) -> dict[str, Any]:
        """The proof as nested dictionaries."""
        root: dict[str, Any] = {}
        waiting: list[tuple[Proof, dict[str, Any]]] = [(self, root)]
        while waiting:
            proof, result = waiting.pop()
            result |= proof._head()
            if proof.rule is not None and not proof.is_repeated:
                premises = result["premises"] = [
                    {} if isinstance(p, Proof) else {"condition": p} for p in proof.premises
                ]
                pairs = zip(proof.premises, premises, strict=True)
                waiting += [(premise, entry) for premise, entry in pairs if isinstance(premise, Proof)]
        return root

    def to_json(self) -> str:
        """The proof as JSON, with the structure of `to_dict`."""
        parts: list[str] = []
        waiting: list[Proof | str] = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                parts.append(part)
                continue
            head = json.dumps(part._head(), ensure_ascii=False)
            if part.rule is None or part.is_repeated:
                parts.append(head)
                continue
            parts.append(f'{head[:-1]}, "premises": [')
            waiting.append("]}")
            for number, premise in reversed(list(enumerate(part.premises))):
                is_proof = isinstance(premise, Proof)
                waiting.append(premise if is_proof else json.dumps({"condition": premise}, ensure_ascii=False))
                if number:
                    waiting.append(", ")
        return "".join(parts)

    def _head(self) -> dict[str, Any]:
        """All but the premises."""
        result: dict[str, Any] = {"fact": self.fact, "height": self.height}
        if self.rule is not None:
            result["rule"] = self.rule
        return {**result, "repeated": True} if self.is_repeated else result

    def __str__(self) -> str:
        lines: list[str] = []
        waiting: list[tuple[Proof | str, str, str]] = [(self, "", "")]  # with what its line and those below begin
        while waiting:
            part, first, rest = waiting.pop()
            if isinstance(part, str):
                lines.append(first + part)
                continue
            rule = "" if part.rule is None else f"    {part.rule}"
            lines.append(f"{first}{part.fact}{rule}{' (see above)' if part.is_repeated else ''}")
            for number, premise in reversed(list(enumerate(part.premises, start=1))):
                is_last = number == len(part.premises)
                branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
                waiting.append((premise, rest + branch, rest + below))
        return "\n".join(lines)


@dataclass(frozen=True)
class RuleFailure:
    """A rule that does not derive a fact: the first literal that fails, and for which values of variables."""

    rule: str
    literal: str
    count: int
    """For how many values of the variables of the literals before it the literal is evaluated."""
    examples: tuple[Mapping[str, str], ...] = ()

    def __str__(self) -> str:
        if not self.count:
            return f"{self.rule}\n  does not match: {self.literal}"
        shown = "; ".join(", ".join(f"{name} = {value}" for name, value in one.items()) for one in self.examples)
        others = self.count - len(self.examples)
        more = f" (and {others} other{'s' if others > 1 else ''})" if others else ""
        return f"{self.rule}\n  {self.literal} fails" + (f" for {shown}{more}" if shown else "")


@dataclass(frozen=True)
class WhyNot:
    """A fact that does not hold, and why each rule of its relation fails to derive it."""

    fact: str
    failures: tuple[RuleFailure, ...]

    def to_dict(self) -> dict[str, Any]:
        """The reasons as nested dictionaries."""
        failures = [
            {"rule": f.rule, "literal": f.literal, "count": f.count, "examples": [dict(one) for one in f.examples]}
            for f in self.failures
        ]
        return {"fact": self.fact, "failures": failures}

    def to_json(self) -> str:
        """The reasons as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        if not self.failures:
            return f"{self.fact} was not inserted, and no rule derives its relation"
        lines = [f"{self.fact} was not inserted, and no rule derives it:"]
        lines += [f"  {line}" for failure in self.failures for line in str(failure).splitlines()]
        return "\n".join(lines)
