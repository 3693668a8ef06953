"""The files of a form, each rendered only if what it is made of has changed."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from byterefs.errors import EmitError
from byterefs.files import digest, file_digest, replacing
from byterefs.model import Array, Fragment, Refs
from byterefs.view import View

Render = Callable[[Path], bool]
"""writes a file to the path that it is given; False if there is nothing to write"""
OPENING = ("open.json", "OPEN.md")
"""written by ``emitters.write_open``, never removed here"""


def inline_values(array: Array) -> bytes:
    """All values of an ``inline`` or ``affine`` array, C order, in its dtype."""
    if array.values is not None:
        return array.values
    raise EmitError(
        f"{array.array}: a {array.storage} array without values cannot be written; run the plan again"
    )


class Parts:
    """The files under ``out``; ``state`` is what :meth:`finish` returned last time, ``{}`` for none."""

    def __init__(self, out: Path, state: Mapping[str, Any]) -> None:
        self.out = out
        self.before: Mapping[str, list[str]] = state.get("files", {})
        self.after: dict[str, list[str]] = {}

    def file(self, name: str, made_of: Any, render: Render) -> None:
        """Bring the file ``name`` up to date; it is rendered if ``made_of`` or its own bytes differ.

        A file whose bytes come out the same is left alone, so that it keeps its mtime.
        """
        path, key = self.out / name, digest(made_of)
        now = file_digest(path) if path.is_file() else ""
        if self.before.get(name) != [key, now]:
            now = replace(path, render, now)
        self.after[name] = [key, now]

    def bytes(self, name: str, data: bytes) -> None:
        """The same for a small file whose content is at hand."""
        self.file(name, hashlib.sha256(data).hexdigest(), lambda path: bool(path.write_bytes(data)))

    def finish(self) -> dict[str, Any]:
        """Remove every file that is no part of the form any more; the state of what is left."""
        for path in sorted(self.out.rglob("*"), reverse=True):
            name = path.relative_to(self.out).as_posix()
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif not self.after.get(name, ["", ""])[1] and name not in OPENING:
                path.unlink()
        return {"files": self.after}


def replace(path: Path, render: Render, now: str) -> str:
    """Render a file in place of ``path``, unless its bytes have the digest ``now`` of what is there.

    Returns the digest of what is there then, empty for no file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, suffix=".part") as folder:
        fresh = Path(folder) / path.name
        if not render(fresh):
            path.unlink(missing_ok=True)
            return ""
        new = file_digest(fresh)
        if new != now:
            with replacing(path) as part:
                fresh.replace(part)
    return new


class Flat:
    """Rows of a referenced array by position in C order; the last two fragments are kept in memory."""

    def __init__(self, view: View, array: str) -> None:
        self.grid = view.grid(array)
        self.width = prod(self.grid[1:])
        """rows per ``dim_0`` key"""
        self.rows = prod(self.grid)
        self.fragments: list[Fragment] = view.fragments(array)
        self._refs = lru_cache(maxsize=2)(
            lambda i: view.refs(array, self.fragments[i].start, self.fragments[i].stop)
        )

    def covering(self, start: int, stop: int) -> list[int]:
        """Numbers of the fragments that hold rows ``[start, stop)``."""
        w = self.width
        return [
            i for i, f in enumerate(self.fragments) if f.start * w < stop and f.stop * w > start
        ]

    def digests(self, start: int, stop: int) -> list[str]:
        """What the rows ``[start, stop)`` are made of."""
        return [self.fragments[i].digest for i in self.covering(start, stop)]

    def slice(self, start: int, stop: int) -> Refs:
        """Rows ``[start, stop)``; ``data`` is keyed from ``start``."""
        pieces = []
        for i in self.covering(start, stop):
            first = self.fragments[i].start * self.width
            last = self.fragments[i].stop * self.width
            pieces.append(cut(self._refs(i), max(start, first) - first, min(stop, last) - first))
        return join(pieces)

    def fragment(self, i: int) -> Refs:
        """All rows of fragment ``i``."""
        return self._refs(i)


def cut(refs: Refs, start: int, stop: int) -> Refs:
    """Rows ``[start, stop)`` of ``refs``."""
    data = {i - start: d for i, d in refs.data.items() if start <= i < stop}
    return Refs(refs.source[start:stop], refs.offset[start:stop], refs.size[start:stop], data)


def join(pieces: list[Refs]) -> Refs:
    """Runs of rows one after another."""
    if len(pieces) == 1:
        return pieces[0]
    data: dict[int, bytes] = {}
    start = 0
    for piece in pieces:
        data |= {start + i: d for i, d in piece.data.items()}
        start += len(piece.source)
    return Refs(
        np.concatenate([np.zeros(0, np.int32), *(p.source for p in pieces)]),
        np.concatenate([np.zeros(0, np.int64), *(p.offset for p in pieces)]),
        np.concatenate([np.zeros(0, np.int64), *(p.size for p in pieces)]),
        data,
    )
