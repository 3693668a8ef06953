"""What became of each array of one file, and the line that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from byterefs import emitters
from tally.line import Line


@dataclass
class Tally:
    """What became of each array of one file."""

    stored: dict[str, int] = field(default_factory=dict)
    """array -> its bytes in the file"""
    refused: dict[str, str] = field(default_factory=dict)
    proven: dict[str, set[str]] = field(default_factory=dict)
    """array -> forms through which every value was compared"""
    unable: dict[str, dict[str, str]] = field(default_factory=dict)
    """array -> form -> why the form cannot hold it, or nobody can compare it"""
    wrong: dict[str, str] = field(default_factory=dict)
    file: list[str] = field(default_factory=list)
    """what is wrong with a form as a whole"""

    def outcome(self, array: str) -> str:
        """verified, refused, wrong or absent."""
        if array in self.wrong:
            return "wrong"
        if self.proven.get(array):
            return "verified"
        return "refused" if array in self.refused or array in self.unable else "absent"

    def why(self, array: str) -> str:
        """The reason of an array that is not verified, for a person."""
        if array in self.wrong:
            return f"{array}: {self.wrong[array]}"
        if array in self.refused:
            return f"{array}: {self.refused[array]}"
        forms: dict[str, list[str]] = {}
        for form, reason in self.unable.get(array, {}).items():
            forms.setdefault(reason, []).append(form)
        said = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in forms.items())
        return f"{array}: {said or 'the scan says nothing of it'}"


def summed(line: Line, tally: Tally) -> Line:
    """The line with everything counted."""
    outcomes: dict[str, list[str]] = {}
    for name in sorted(tally.stored):
        outcomes.setdefault(tally.outcome(name), []).append(name)
    count = {word: len(names) for word, names in outcomes.items()}
    verified = outcomes.get("verified", [])
    others = [n for word in ("wrong", "absent", "refused") for n in outcomes.get(word, [])]
    return replace(
        line,
        arrays=len(tally.stored),
        verified=len(verified),
        refused=count.get("refused", 0),
        absent=count.get("absent", 0),
        bytes=sum(tally.stored.values()),
        bytes_verified=sum(tally.stored[n] for n in verified),
        outcome="wrong" if tally.file else verdict(count),
        forms=per_form(tally.proven),
        reason=" | ".join([*tally.file, *(tally.why(n) for n in others[:20])]),
    )


def verdict(count: Mapping[str, int]) -> str:
    """The outcome of a file from how many of its arrays have which."""
    if count.get("wrong"):
        return "wrong"
    if not count.get("verified"):
        return "refused"
    return "partial" if count.get("refused") or count.get("absent") else "verified"


def per_form(proven: Mapping[str, set[str]]) -> dict[str, int]:
    """Form -> how many arrays were verified through it."""
    return {
        form: n for form in emitters.NAMES if (n := sum(form in forms for forms in proven.values()))
    }
