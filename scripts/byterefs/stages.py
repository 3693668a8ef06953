"""What a stage does around its one library call: read the receipt before it, write its own.

Each function gives back the counts that its receipt holds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from byterefs import emitters, files, kept, plan, receipts, store, view
from byterefs.proving import sample

log = logging.getLogger(__name__)


def update_store(
    discovered: Path, batches: Sequence[Path], store_path: Path, receipt: Path
) -> dict[str, Any]:
    """Merge the scans of all batches, forget the sources that are gone.

    The plan lies in the store and loses the placements of what is replaced, so its receipt is
    removed first: an equal receipt of `store` would otherwise leave it as it is.
    """
    work = receipts.read(discovered)
    if batches or work["removed"]:
        (store_path.parents[1] / "plan" / "receipt.json").unlink(missing_ok=True)
    done = store.update(store_path, batches, work["removed"], work.get("told", {}))
    # what a job that was killed had begun, and another one did again
    sweep(discovered.parents[1] / "scan")
    return receipts.write(receipt, "store", done)


def make_plan(store_path: Path, receipt: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Plan into the store and into the folder of the receipt."""
    folder = receipt.parent
    done = plan.plan(store_path, folder, config)
    covers = {
        name: files.file_digest(folder / name)
        for name in ("plan.vrt", "consistency.json", "consistency.html")
    }
    return receipts.write(receipt, "plan", {**done, "covers": covers})


def look(store_path: Path, receipt: Path) -> dict[str, Any]:
    """Digest every fragment of the view, and keep in the store what the jobs after this one would make again."""
    with view.View.open(store_path) as opened:
        done = view.receipt(opened)
        found = dict(results(opened, done))
    kept.write(store_path, found)
    return receipts.write(receipt, "view", done)


def results(opened: view.View, done: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """What is kept of a view, by name: its receipt, and of arrays whose rows are few enough these and fingerprints."""
    yield view.RECEIPT, files.canonical(done).encode()
    whole = opened.across_eras()
    for name in whole.arrays:
        if not view.few(whole, name):
            continue  # a look at seventeen million rows is not digesting them
        refs = sample.refs_of(whole, name)
        yield sample.prints_of(name), sample.made(whole, name, refs).tobytes()
        if refs is not None and not refs.data and not (refs.offset >= 0).any():
            log.warning(
                "view %s: array %r has no chunk in any source and reads as fill everywhere; is this what was "
                "archived, or are files missing beside the sources?", whole.dataset, name,
            )  # fmt: skip
        data = None if refs is None else view.packed(refs)
        if data is not None:
            yield view.rows_of(name), data


def emit(
    store_path: Path, receipt: Path, target: str, form: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Bring one form up to date with the view that its receipt describes."""
    viewed = receipts.read(receipt.parents[2] / "view" / "receipt.json")
    out = receipt.with_name(form)
    sweep(out)
    done = emitters.build(
        store_path, viewed["digest"], out, form=form, target=target, options=options
    )
    return receipts.write(receipt, "emit", done)


def sweep(folder: Path) -> None:
    """Remove what a killed job had not finished: hidden ``.part`` files, and SQLite's journals of them."""
    for path in sorted(folder.rglob(".*.part*")):
        path.unlink()
