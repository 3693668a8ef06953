"""One line that says what failed, out of everything that Snakemake printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ERROR = re.compile(r"^Error in rule (\w+):\n((?: {4}.*\n)+)", re.M)
OWN = re.compile(r"^\w*(?:Error|Exception)\b[^\n]*:\n((?:(?!Complete log)[^\n]+\n)+)", re.M)
"""Snakemake's own refusals: the kind of error, then its words."""


class Failure(NamedTuple):
    """A job that failed, and did not succeed when it was tried again."""

    rule: str
    dataset: str
    log: Path

    @property
    def reason(self) -> str:
        """The last line of the job's log."""
        said = self.log.read_text(errors="replace") if self.log.is_file() else ""
        return last(said) or "it left no word, as one that is killed"


def failures(words: str) -> list[Failure]:
    """The jobs that failed in the end, in the order of their failure."""
    found: dict[str, Failure] = {}
    for match in ERROR.finditer(words):
        facts = dict(re.findall(r"^ {4}(\w+): (.*)$", match[2], re.M))
        if f"\nFinished jobid: {facts['jobid']} (" in words[match.end() :]:
            continue
        log = Path(facts.get("log", "").split(" (check log")[0])
        dataset = log.parts[1] if len(log.parts) > 2 else "?"
        found.setdefault(facts["jobid"], Failure(match[1], dataset, log))
    return list(found.values())


def line(words: str) -> str:
    """What went wrong, in one line: dataset, rule, reason and log."""
    failed = failures(words)
    if not failed:
        own = OWN.findall(words)
        return " ".join((own[-1] if own else last(words)).split()) or "snakemake said nothing"
    first, *others = failed
    more = f"; {len(others)} more failed" if others else ""
    return f"{first.dataset}: {first.rule} failed: {first.reason} (log {first.log}{more})"


def last(text: str) -> str:
    """The last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
