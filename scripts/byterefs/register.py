"""Announce what was published: sds rows, STAC, landing page; kept here and placed beside the forms.

``sync`` leaves the keys of :data:`byterefs.publishing.publication.REGISTERED` to this stage, which puts them
through the same shelf once ``latest.json`` points to what they describe.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from byterefs import urls
from byterefs.catalogue import page, root, sds, stac, times
from byterefs.catalogue.announced import Publication, publication
from byterefs.errors import RegisterError
from byterefs.files import covers, digest, replacing, write_json
from byterefs.publishing.destinations import shelf
from byterefs.publishing.publication import registered
from byterefs.publishing.shelf import Shelf
from byterefs.receipts import SERVES_ALL, read
from byterefs.view import View

log = logging.getLogger(__name__)

PAGE = "index.html"
COLLECTION = "stac/collection.json"


def run(
    receipt: Path, *, store: Path, config: Mapping[str, Any], synced: Sequence[Path]
) -> dict[str, Any]:
    """Announce every publication of a dataset and write RECEIPT; gives back the counts.

    ``config`` has the sections dataset, emit, sync and register; ``synced`` are the receipts of `sync`.
    """
    receipts = {path.stem: path for path in synced}
    entries = [e for e in config["sync"] if not e.get("dry_run")]
    folder, counts, announced = receipt.parent, Counter[str](), {}
    with View.open(store) as view:
        for entry in entries:
            made = publication(view, entry, receipts[entry["name"]], config["emit"])
            out = folder / made.name
            describe(view, made, out, store.parents[1], config["register"].get("bowerbird"))
            counts["forms"] += len(made.forms)
            counts.update(place(shelf(entry), out))
            announced[made.name] = {
                "address": made.base,
                "collection": f"{made.base}/{COLLECTION}",
                "mirror_of": made.mirror_of,
                "span": times.span(view, view.shown),
                "title": view.title or view.dataset,
                "version": made.version,
            }
            log.info("announced %s: %s/%s", made.name, made.base, PAGE)
        sweep(folder, {e["name"] for e in entries})
    covered = {f"{n}/{f}": sha for n in announced for f, sha in covers(folder / n).items()}
    told = dict(sorted({"publications": len(announced), **counts}.items()))
    done = {"announced": announced, "counts": told, "covers": covered, "digest": digest(covered)}
    write_json(receipt, {"stage": "register", **done})
    return told


def describe(
    view: View, made: Publication, out: Path, results: Path, bowerbird: str | None
) -> None:
    """Write everything that announces a publication into a folder of its own."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    found = sds.rows(view.dataset, bowerbird, made)
    (out / "sds.csv").write_bytes(sds.as_csv(found))
    sds.write_parquet(found, out / "sds.parquet")
    for name, content in stac.documents(view, made).items():
        write_json(out / "stac" / name, content)
    text = page.render(view, made, proofs(results, made), row_files(results, view, made))
    (out / PAGE).write_text(text, encoding="utf-8")


def proofs(results: Path, made: Publication) -> dict[str, dict[str, Any]]:
    """Form -> the receipt of its verification. Raises RegisterError if it proves another state."""
    now = read(results / "view" / "receipt.json")["digest"]
    found = {}
    for form in made.forms:
        target = "access" if form.form in SERVES_ALL else made.target
        path = results / "verify" / target / f"{form.form}.json"
        found[form.form] = read(path)
        if found[form.form].get("view", now) != now:
            raise RegisterError(
                f"{path}: it proves another state of the table than {results / 'view' / 'receipt.json'} "
                f"describes; run the workflow again"
            )
    return found


def row_files(results: Path, view: View, made: Publication) -> dict[str, list[dict[str, Any]]]:
    """Of each referenced array the Parquet files that hold its rows, in order."""
    parquet = made.form("parquet")
    if parquet is None:
        return {}
    folder = results / "emit" / made.target / "parquet"
    out: dict[str, list[dict[str, Any]]] = {}
    for name in view.referenced():
        stem = f"refs_{urls.file_name(name)}"
        files = [
            f for f in parquet.files if f == f"{stem}.parquet" or f.startswith(f"{stem}/part-")
        ]
        parts = [
            {"file": f, "size": int(parquet.files[f]["size"]), "first": first_key(folder / f)}
            for f in files
        ]
        out[name] = sorted(parts, key=lambda part: part["first"])
    return out


def first_key(file: Path) -> int:
    """The smallest ``dim_0`` in a file, by its statistics; 0 for one without rows."""
    found = pq.ParquetFile(file).metadata
    lows = [found.row_group(i).column(0).statistics for i in range(found.num_row_groups)]
    return min((int(s.min) for s in lows if s is not None and s.has_min_max), default=0)


def place(where: Shelf, out: Path) -> Counter[str]:
    """Bring what announces a publication to its place, the page last; what is gone is removed there."""
    counts = Counter(dict.fromkeys(("deleted", "put", "unchanged"), 0))
    wanted = covers(out)
    with where.lock():
        there = {key for key in where.list() if registered(key)}
        for key in sorted(wanted, key=lambda k: (k == PAGE, k == COLLECTION, k)):
            if key in there and where.digest(key) == wanted[key]:
                counts["unchanged"] += 1
                continue
            where.put(key, out / key)
            counts["put"] += 1
        for key in sorted(there - wanted.keys()):
            where.delete(key)
            counts["deleted"] += 1
    return counts


def sweep(folder: Path, names: set[str]) -> None:
    """Remove what announces publications that the config does not have any more."""
    for path in folder.iterdir():
        if path.is_dir() and path.name not in names:
            shutil.rmtree(path)


# --- over all datasets -----------------------------------------------------------------------------


CATALOGUE = ("sds.csv", "sds.parquet", "catalog.json", "catalog.html")
"""the files over all datasets, in the order in which they are placed"""


def catalogue(
    receipt: Path, *, announced: Sequence[Path], where: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The root catalogue, its page and one table of sds over all datasets, beside RECEIPT; gives back the counts.

    ``announced`` are the receipts of `register`. Of a dataset's publications the first that is no mirror
    is its child. ``where`` is the place that they are brought to, if the config names one. Raises
    RegisterError if readers of that place cannot reach a dataset.
    """
    children, rows, shown = {}, [], []
    for path in announced:
        found = read(path)["announced"]
        told = {n: sds.from_csv((path.parent / n / "sds.csv").read_bytes()) for n in found}
        rows += [row for name in found for row in told[name]]
        own = [n for n, p in found.items() if not p["mirror_of"]]
        if own:
            dataset, first = path.parents[1].name, found[own[0]]
            children[dataset] = (first["title"], first["collection"])
            shown.append(listed(dataset, first, told[own[0]]))
    folder = receipt.parent
    if where:
        reachable(children, str(where["to"]))
    write_json(folder / "catalog.json", stac.catalogue(children))
    with replacing(folder / "catalog.html") as part:
        part.write_text(root.render(sorted(shown)), encoding="utf-8")
    with replacing(folder / "sds.csv") as part:
        part.write_bytes(sds.as_csv(rows))
    with replacing(folder / "sds.parquet") as part:
        sds.write_parquet(rows, part)
    counts = {"datasets": len(children), "rows": len(rows)}
    if where:
        counts |= place_catalogue(shelf(where), folder)
    covered = {name: sha for name, sha in covers(folder).items() if name in CATALOGUE}
    write_json(receipt, {"stage": "register", "counts": counts, "covers": covered})
    return counts


def listed(dataset: str, found: Mapping[str, Any], rows: Sequence[sds.Row]) -> root.Dataset:
    """A dataset as the page over all datasets shows it."""
    forms = {row.name.rpartition(".")[2] for row in rows}
    return root.Dataset(
        dataset,
        found["title"],
        found["span"],
        tuple(page.WORDS[form] for form in page.FORMS if form in forms),
        found["version"],
        f"{found['address']}/{PAGE}",
        found["collection"],
    )


def reachable(children: Mapping[str, tuple[str, str]], to: str) -> None:
    """Refuse to lead readers of an object store to a path of this machine."""
    local = [name for name, (_, href) in children.items() if "://" not in href]
    if to.startswith("s3://") and local:
        raise RegisterError(
            f"{to}: {local[0]!r} is published at {children[local[0]][1]}, which no reader of the catalogue there "
            f"reaches; say in sync.url of the dataset at which address it is served"
        )


def place_catalogue(where: Shelf, folder: Path) -> dict[str, int]:
    """Bring the files over all datasets to their place, the catalogue last. Nothing else there is looked at."""
    counts = {"put": 0, "unchanged": 0}
    for name in CATALOGUE:
        same = where.get(name) == (folder / name).read_bytes()
        if not same:
            where.put(name, folder / name)
        counts["unchanged" if same else "put"] += 1
    log.info("placed the catalogue: %s/%s", where.where, CATALOGUE[-1])
    return counts
