"""A line of the census, its TSV, and the table that sums them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

OUTCOMES = ("verified", "partial", "refused", "wrong", "crashed")


@dataclass(frozen=True, slots=True)
class Line:
    """What the census found of one file."""

    path: str
    format: str
    arrays: int = 0
    """arrays of the file: those that are verified, refused, absent, wrong"""
    verified: int = 0
    """every value compared, through every form that can hold the array"""
    refused: int = 0
    """not recorded or not held by any form, by name"""
    absent: int = 0
    """listed by an oracle, and neither recorded nor refused by name"""
    bytes: int = 0
    """stored bytes of all arrays of the file"""
    bytes_verified: int = 0
    outcome: str = "refused"
    forms: Mapping[str, int] = field(default_factory=dict)
    """form -> arrays verified through it"""
    opened_by: Sequence[str] = ()
    """oracles that can open the file"""
    reason: str = ""


def header() -> str:
    """The first line of the TSV."""
    return "\t".join(f.name for f in fields(Line)) + "\n"


def written(line: Line) -> str:
    """One line of the TSV; what would break it is escaped."""
    forms = " ".join(f"{form}={n}" for form, n in sorted(line.forms.items()))
    cells = [*astuple(line)]
    names = [f.name for f in fields(Line)]
    cells[names.index("forms")] = forms
    cells[names.index("opened_by")] = " ".join(line.opened_by)
    return "\t".join(map(cell, cells)) + "\n"


def cell(value: object) -> str:
    """A value without tab, line break or byte that is no text."""
    text = str(value).encode(errors="backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def save(lines: Iterable[Line], out: Path) -> None:
    """Write the TSV, sorted by path and format."""
    out.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(lines, key=lambda line: (line.path, line.format))
    out.write_text(header() + "".join(map(written, ordered)), encoding="utf-8")


@dataclass
class Sum:
    """The lines of one format."""

    files: int = 0
    opened: int = 0
    """files that an oracle can open; what follows sums these"""
    arrays: int = 0
    verified: int = 0
    bytes: int = 0
    bytes_verified: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))


def sums(lines: Iterable[Line]) -> dict[str, Sum]:
    """Format -> the sum of its lines, in order of the number of files."""
    found: dict[str, Sum] = {}
    for line in lines:
        one = found.setdefault(line.format, Sum())
        one.files += 1
        one.outcomes[line.outcome] += 1
        if line.opened_by:
            one.opened += 1
            one.arrays += line.arrays
            one.verified += line.verified
            one.bytes += line.bytes
            one.bytes_verified += line.bytes_verified
    return dict(sorted(found.items(), key=lambda item: -item[1].files))


def share(part: int, whole: int) -> str:
    """``98.7 %``; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"
