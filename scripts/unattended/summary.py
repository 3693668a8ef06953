"""What a run did, by the receipts that it wrote: lines for a mail, none where nothing was new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from byterefs import receipts

NAMES = 3
"""Sources that are named; of more only the number is said."""


def news(datasets: Iterable[str], since: float) -> list[str]:
    """One line per fact, of every dataset that has one; ``since`` is the mtime of a file made before."""
    return [f"{name}: {fact}" for name in datasets for fact in facts(Path("results", name), since)]


def facts(results: Path, since: float) -> Iterator[str]:
    """What arrived, what was verified and what was published."""

    def written(pattern: str) -> list[Path]:
        return [p for p in sorted(results.glob(pattern)) if p.stat().st_mtime >= since]

    if written("store/receipt.json"):
        yield from arrived(results)
    proofs = [receipts.read(path) for path in written("verify/*/*.json")]
    if proofs:
        forms = ", ".join(f"{proof['form']} ({proof['target']})" for proof in proofs)
        values = sum(proof["values_compared"] for proof in proofs)
        yield f"verified {forms}: {values:,} values compared with the sources"
    for path in written("sync/*.json"):
        done = receipts.read(path)
        if "version" in done:
            yield f"published {done['name']}: version {done['version']} at {done['to']}"


def arrived(results: Path) -> Iterator[str]:
    """The sources that the store took in, and those that it let go."""
    found = receipts.read(results / "discover" / "receipt.json")
    sources = [source for batch in found["batches"].values() for source in batch]
    for what, paths in (("arrived", sources), ("gone", found["removed"])):
        if paths:
            yield f"{some(paths)} {what}, {found['counts']['sources']:,} in all"


def some(paths: list[str]) -> str:
    """How many sources, and the names of the first."""
    names = ", ".join(path.rpartition("/")[2] for path in sorted(paths)[:NAMES])
    more = ", …" if len(paths) > NAMES else ""
    return f"{len(paths):,} {'source' if len(paths) == 1 else 'sources'} ({names}{more})"
