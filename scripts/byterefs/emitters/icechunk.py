"""The Icechunk form: one repository of virtual chunks, in Zarr v3, that serves every remap target.

A chunk's location is ``vcc://<slug>/<rest>``: the slug names a container, one per source prefix of
the view, and the container's URL is configuration. So the repository is the same for every target,
and :func:`retarget` makes the copy that carries another target's URLs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import icechunk as ic

from byterefs.emitters import Place, Reader, write_open
from byterefs.emitters._icechunk import (
    Piece,
    Places,
    delete_vanished,
    piece_digest,
    pieces,
    put,
    remove,
    split_size,
    write_piece,
)
from byterefs.emitters._icechunk_meta import (
    FORM,
    configured,
    container_urls,
    coverage,
    depth,
    documents,
    fixed,
    opening,
    up_to_date,
    whole_key,
)
from byterefs.emitters._icechunk_reader import (
    CONTAINERS,
    IcechunkReader,
    container,
    stored_config,
)
from byterefs.emitters._parts import OPENING, Flat, inline_values
from byterefs.files import covers, write_json_if_changed
from byterefs.view import View

PER_TARGET = False
NOTES = ("the gdal line needs GDAL 3.14 or newer, whose Zarr driver reads Icechunk",)
"""what a reader has to mind"""
BATCH_ROWS = 1_000_000
"""rows of one commit of a bulk load: a commit costs splits x rows (s3.md, 4.2)"""


def emit(
    view: View, out: Path, *, target: str, options: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Bring the repository ``out`` up to date in one commit of what changed.

    It is built again from scratch, beside and then in place, if there is no state, if its files are
    not those of the state, if an array's dtype, codec, chunks or split changed, or if more than
    ``BATCH_ROWS`` rows did. Raises EmitError for what Zarr v3 or numcodecs cannot express.
    """
    ic.set_logs_filter("error")
    covered = {name: coverage(array) for name, array in view.arrays.items()}
    for other in view.targets:
        view.paths(other)  # a RemapError that names the source
    places = Places(view)
    containers = {other: places.urls(other) for other in view.targets}
    loader = Loader(view, places, options, state)
    if not state or files(out) != state["files"] or loader.must_rebuild():
        with rebuilt(out) as folder:
            loader.build(folder)
    else:
        loader.update(out)
    write_json_if_changed(out / CONTAINERS, containers)
    shutil.rmtree(out / "overwritten", ignore_errors=True)
    lines = opening(view, target="access", options=options, place=Place())
    write_open(out, view, FORM, "access", lines, covered, NOTES)
    return {**loader.now, "pieces": loader.pieces, "files": files(out)}


def check(view: View, array: str) -> None:
    """Raise EmitError for an array that Zarr v3 or numcodecs cannot express."""
    coverage(view.arrays[array])


def files(out: Path) -> dict[str, str]:
    """sha256 of the repository's files, without how to open it."""
    return {name: sha for name, sha in covers(out).items() if name not in OPENING}


@contextmanager
def rebuilt(out: Path) -> Iterator[Path]:
    """A folder that takes the place of ``out`` if nothing was raised."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{out.name}.*.part"):
        shutil.rmtree(left)
    fresh = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        yield fresh
        old = out.with_name(f".{out.name}.old.part")
        if out.exists():
            out.replace(old)
        fresh.replace(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


class Loader:
    """One emit: what the repository should hold, what it holds, and the steps between."""

    def __init__(
        self, view: View, places: Places, options: Mapping[str, Any], state: Mapping[str, Any]
    ) -> None:
        self.view, self.places, self.before = view, places, state
        self.flats = {name: Flat(view, name) for name in view.referenced()}
        self.splits = {
            name: int(
                options.get("split")
                or split_size(view.arrays[name], flat.grid, state.get("splits", {}).get(name))
            )
            for name, flat in self.flats.items()
        }
        self.documents = documents(view)
        self.now = self.wanted()
        self.pieces: dict[str, dict[str, list[Any]]] = {name: {} for name in self.flats}

    def wanted(self) -> dict[str, Any]:
        """What decides whether anything has to be written."""
        arrays = self.view.arrays
        return {
            "documents": {key: hashlib.sha256(d).hexdigest() for key, d in self.documents.items()},
            "fixed": {n: fixed(a, self.view) for n, a in arrays.items()},
            "values": {
                n: hashlib.sha256(inline_values(a)).hexdigest()
                for n, a in arrays.items()
                if n not in self.flats
            },
            "fragments": {
                n: {str(f.start): [f.stop, f.digest] for f in flat.fragments}
                for n, flat in self.flats.items()
            },
            "containers": self.places.urls("access"),
            "endpoint": self.view.endpoint("access"),
            "splits": self.splits,
        }

    def must_rebuild(self) -> bool:
        """Whether an array changed in a way that leaves none of its references right, or most of them."""
        was, now = self.before, self.now
        kept = was["fixed"].keys() & now["fixed"].keys()
        if any(was["fixed"][n] != now["fixed"][n] for n in kept):
            return True
        if any(was["splits"].get(n) != now["splits"].get(n) for n in kept):
            return True
        return (
            sum(
                (flat.fragments[i].stop - flat.fragments[i].start) * flat.width
                for n, flat in self.flats.items()
                for i in self.changed(n)
            )
            > BATCH_ROWS
            and sum(flat.rows for flat in self.flats.values()) > BATCH_ROWS
        )

    def changed(self, name: str) -> list[int]:
        """Numbers of the fragments that are not what they were."""
        was = self.before.get("fragments", {}).get(name, {})
        now = self.now["fragments"][name]
        return [
            i
            for i, f in enumerate(self.flats[name].fragments)
            if was.get(str(f.start)) != now[str(f.start)]
        ]

    def config(self) -> ic.RepositoryConfig:
        """Containers of the sources as they were opened, and manifest splits."""
        return configured(self.now["containers"], self.splits, self.now["endpoint"])

    def build(self, folder: Path) -> None:
        """A new repository in ``folder``, in commits of whole splits."""
        self.before = {}
        storage = ic.local_filesystem_storage(str(folder))
        repo = ic.Repository.create(storage, config=self.config())
        repo.save_config()
        session = repo.writable_session("main")
        self.write_documents(session)
        rows = 0
        for piece in self.changed_pieces(session):
            write_piece(session, piece, self.places)
            rows += prod(piece.grid)
            if rows >= BATCH_ROWS and piece.stop % self.splits[piece.array] == 0:
                session.commit("load")
                session, rows = repo.writable_session("main"), 0
        session.commit(self.message(), allow_empty=True)

    def update(self, out: Path) -> None:
        """One commit of what changed; none if nothing did."""
        storage = ic.local_filesystem_storage(str(out))
        repo = ic.Repository.open(storage, config=self.config())
        if any(self.before[key] != self.now[key] for key in ("containers", "endpoint", "splits")):
            repo.save_config()
        session = repo.writable_session("main")
        remove(session, (key.removesuffix("/zarr.json") for key in self.gone()))
        self.write_documents(session)
        for piece in self.changed_pieces(session):
            write_piece(session, piece, self.places)
        if session.has_uncommitted_changes:
            session.commit(self.message())

    def gone(self) -> list[str]:
        """Documents of arrays and groups that are no more."""
        return sorted(self.before["documents"].keys() - self.now["documents"].keys())

    def message(self) -> str:
        """What a commit says of itself."""
        return f"{self.view.dataset}: {len(self.view.sources)} sources"

    def write_documents(self, session: ic.Session) -> None:
        """Metadata and native values that differ."""
        was = self.before
        keys = [k for k, d in self.now["documents"].items() if was.get("documents", {}).get(k) != d]
        put(session, ((key, self.documents[key]) for key in sorted(keys, key=depth)))
        names = [n for n, d in self.now["values"].items() if was.get("values", {}).get(n) != d]
        values = {n: inline_values(self.view.arrays[n]) for n in names}
        put(session, ((whole_key(self.view.arrays[n]), v) for n, v in values.items() if v))

    def changed_pieces(self, session: ic.Session) -> Iterator[Piece]:
        """The pieces that differ, after their vanished chunks were deleted in ``session``."""
        for name, flat in self.flats.items():
            was = self.before.get("pieces", {}).get(name, {})
            changed, now = set(self.changed(name)), self.pieces[name]
            for i, fragment in enumerate(flat.fragments):
                if i not in changed:
                    inside = (k for k in was if fragment.start <= int(k) < fragment.stop)
                    now |= {k: was[k] for k in inside}
                    continue
                for piece in pieces(name, flat, i, self.splits[name]):
                    key, made_of = str(piece.start), piece_digest(piece, self.view.sources)
                    now[key] = [piece.stop, made_of, piece.absent_digest(piece.stop)]
                    if was.get(key) == now[key]:
                        continue
                    if key in was and piece.absent_digest(was[key][0]) != was[key][2]:
                        delete_vanished(session, piece, was[key][0])
                    yield piece


def retarget(out: Path, view: View, target: str, to: Path) -> None:
    """The repository of ``out`` at ``to``, with the URLs of ``target`` in its configuration.

    Everything but the file ``repo`` is the same byte for byte. A copy that is up to date is left
    alone, so that nothing has to be sent again.
    """
    ic.set_logs_filter("error")
    wanted = container_urls(view, target)
    covered = {name: coverage(array) for name, array in view.arrays.items()}
    if not up_to_date(out, to, wanted, view.endpoint(target)):
        with rebuilt(to) as folder:
            shutil.copytree(out, folder, ignore=shutil.ignore_patterns("overwritten", CONTAINERS))
            config = stored_config(folder)
            for name, url in wanted.items():
                config.set_virtual_chunk_container(container(name, url, view.endpoint(target)))
            ic.Repository.open(
                ic.local_filesystem_storage(str(folder)), config=config
            ).save_config()
            shutil.rmtree(folder / "overwritten", ignore_errors=True)
    lines = opening(view, target=target, options={}, place=Place())
    write_open(to, view, FORM, target, lines, covered, NOTES)


# --- the proving reader ----------------------------------------------------------------------------


def open(out: Path, *, access: Callable[[str], str], target: str = "access") -> Reader:
    """The repository through icechunk and zarr, its containers bound to where ``access`` says.

    ``access`` maps a container's published URL prefix, percent-encoded, to itself or to a path that can
    be read here, unencoded. EmitError if the configuration is not what was written.
    """
    return IcechunkReader(out, access, target)
