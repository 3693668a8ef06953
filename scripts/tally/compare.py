"""Every value of every array of one form, against the libraries that did not decode it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.errors import DecoderError
from byterefs.grid import chunk_window, unlinear
from byterefs.model import Array
from byterefs.proving import artefact, sample
from byterefs.proving.oracle import native
from byterefs.view import View
from tally.outcome import Tally
from tally.witness import Witnesses

WINDOW = 1 << 30
"""bytes of one run of chunks that are compared at a time, at most"""


@dataclass(frozen=True, slots=True)
class Look:
    """What the arrays of one form of one file are looked at with."""

    view: View
    form: str
    reader: Any
    witnesses: Witnesses
    format: str
    until: float

    def at(self, name: str, tally: Tally) -> None:
        """Compare every value of one array, and say in the tally what came of it."""
        try:
            compared = self.compare(self.view.arrays[name])
        except Undone as why:
            tally.unable.setdefault(name, {})[self.form] = str(why)
            return
        except Differs as why:
            tally.wrong.setdefault(name, f"{self.form}: {why}")
            return
        if compared:
            tally.proven.setdefault(name, set()).add(self.form)

    def compare(self, array: Array) -> bool:
        """Whether every value was compared; Differs at the first that is another one."""
        listed = self.witnesses.listed().get(self.named(array))
        undefined = listed is not None and listed.undefined
        known = written(self.view, array) if undefined else windows(array)
        compared = 0
        for start, count in () if undefined and array.values is not None else known:
            if time.monotonic() > self.until:
                raise Undone("it was not compared within the time of a file; raise --seconds")
            self.compare_window(array, start, count)
            compared += 1
        if undefined and not compared:
            raise Undone(
                "elements of it were never written and have no fill, so that HDF5 gives whatever lay in memory "
                "and nothing can be compared; write them, or leave the array out with scan.arrays"
            )
        return True

    def compare_window(self, array: Array, start: list[int], count: list[int]) -> None:
        """Compare one window with the first oracle that can read it; a second one must confirm a difference, but of TIFF."""
        box = tuple(slice(s, s + n) for s, n in zip(start, count, strict=True))
        reasons = []
        difference = None
        for name in self.oracles():
            expected = self.witnesses.read(name, self.named(array), start, count, array.dtype)
            if isinstance(expected, str):
                reasons.append(f"{name}: {expected}")
                continue
            try:
                got = native(np.asarray(self.reader.read(array.array, box)))
            except Exception as error:
                raise self.unread(array, start, count, error) from error
            at = artefact.first_difference(got, expected)
            if at is not None and array.dtype[1] == "S":
                # a string that ends at a NUL has bytes behind it, which libraries cut off
                at = artefact.first_difference(ended(got), ended(expected))
            if at is None:
                return
            place = [s + i for s, i in zip(start, at, strict=False)]
            difference = difference or (
                f"{place} reads {artefact.short(artefact.value_at(got, at))} and {name} reads "
                f"{artefact.short(artefact.value_at(expected, at))}"
            )
            if self.format == "tiff":  # tifffile decodes by imagecodecs, as our readers do
                break
        if difference:
            raise Differs(difference)
        raise Undone(uncompared(reasons))

    def named(self, array: Array) -> str:
        """The name that the array has for the libraries: a DMR++ sidecar spells it without odd characters."""
        name = array.placements[0].source_array if array.placements else array.array
        if self.format != "dmrpp":
            return name
        return next((n for n in self.witnesses.listed() if spelled(n) == spelled(name)), name)

    def oracles(self) -> Iterator[str]:
        """The libraries that did not do the decoding of this form."""
        return (n for n in self.witnesses.able if not (self.form == "vrt" and n == "GDAL"))

    def unread(
        self, array: Array, start: list[int], count: list[int], error: Exception
    ) -> Exception:
        """What a failing reader means: no decoder in its library, damaged bytes, or a wrong reference."""
        if isinstance(error, DecoderError):
            return Undone(str(error))
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        answers = [
            (n, self.witnesses.read(n, self.named(array), start, count, array.dtype))
            for n in self.witnesses.able
        ]
        others = [f"{n}: {text}" for n, text in answers if isinstance(text, str)]
        if self.format == "tiff":  # sound ones are opened by all of them
            others += [f"{n}: {w.refusal}" for n, w in self.witnesses.all.items() if w.refusal]
        if others and self.form != "vrt":
            return Undone(
                f"its stored bytes cannot be decoded here ({said}), and not by another library either "
                f"({'; '.join(others)}); fetch the file again, or leave the array out with scan.arrays"
            )
        if self.form == "vrt":
            direct = self.witnesses.read("GDAL", self.named(array), start, count, array.dtype)
            if isinstance(direct, str):
                return Undone(
                    f"GDAL cannot read the array in its source either ({direct}); use another form than vrt"
                )
        return Differs(f"its reader fails although the source can be read ({said})")


class Undone(Exception):
    """Why an array is not compared through a form."""


class Differs(Exception):
    """A value that is another one, or a reader that fails where the source can be read."""


def uncompared(reasons: list[str]) -> str:
    """That no library but the one that decodes a form could read an array, and what to do then."""
    said = "; ".join(reasons) or "none but the one that decodes this form opens the file"
    return (
        f"its values are compared with nothing, since no independent library reads them ({said}); "
        "compare them once with the software that wrote the file, or leave the array out with scan.arrays"
    )


def ended(values: NDArray[Any]) -> NDArray[Any]:
    """Strings up to their first NUL."""
    cut = [bytes(x).split(b"\0", 1)[0] for x in values.ravel()]
    return np.array(cut, values.dtype).reshape(values.shape)


def spelled(name: str) -> str:
    """A name as Hyrax spells it in CF's manner."""
    return re.sub(r"[^A-Za-z0-9_/]", "_", name)


def written(view: View, array: Array) -> Iterator[tuple[list[int], list[int]]]:
    """Every chunk of an array that is there, one by one."""
    if array.values is not None or not array.shape:
        yield from windows(array) if array.values is not None else ()
        return
    refs, grid = view.refs(array.array), view.grid(array.array)
    for row in np.flatnonzero(
        (refs.offset >= 0) | np.isin(np.arange(len(refs.offset)), list(refs.data))
    ):
        box = chunk_window(unlinear(int(row), grid), array.shape, array.chunks)
        yield [s.start for s in box], [s.stop - s.start for s in box]


def windows(array: Array) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of whole chunks along the first axis that cover an array."""
    if not array.shape:
        yield [], []
        return
    if array.values is not None or not prod(array.shape):
        yield [0] * len(array.shape), list(array.shape)
        return
    for w in sample.slabs(array, array.placements[0], True):
        if prod(w.count) * np.dtype(array.dtype).itemsize > WINDOW:
            raise Undone(
                f"one row of its chunks has {prod(w.count) * np.dtype(array.dtype).itemsize} bytes, more than "
                f"the {WINDOW} that the census decodes at a time"
            )
        yield list(w.start), list(w.count)
