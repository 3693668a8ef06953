"""One image file directory of a TIFF: shape, chunks, and where the bytes of every tile or strip lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tifffile import TiffPage

from byterefs.model import ABSENT, Ints, Key
from byterefs.scanners._common import Chunks, Unsupported, grid_of
from byterefs.scanners._tiff_codec import WITHIN, Encoding, codec

KINDS = {1: "u", 2: "i", 3: "f", 4: "u", 6: "c"}
"""SampleFormat as numpy's kind; 4 (undefined) is unsigned in GDAL too"""
WIDTHS = {"u": (8, 16, 32, 64), "i": (8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128)}
ALPHA = (1, 2)


@dataclass(frozen=True, slots=True)
class Image:
    """What the tags of one IFD say of its pixels."""

    width: int
    height: int
    samples: int
    planar: bool
    """whether each sample has tiles or strips of its own"""
    tiled: bool
    encoding: Encoding

    @property
    def chunky(self) -> bool:
        """Whether a chunk holds all samples of its pixels."""
        return self.samples > 1 and not self.planar

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes in the order of the bytes."""
        plane = ("y", "x")
        return (*plane, "band") if self.chunky else ("band", *plane) if self.planar else plane

    @property
    def shape(self) -> Key:
        """Pixels and samples, in the order of ``dims``."""
        return self.framed((self.height, self.width))

    @property
    def chunks(self) -> Key:
        """A stored chunk, in the order of ``dims``; the last strip may hold fewer rows."""
        rows, columns = self.encoding.chunks[:2]
        return (1, rows, columns) if self.planar else self.framed((rows, columns))

    def framed(self, plane: Key) -> Key:
        """Rows and columns with the samples around them."""
        if self.chunky:
            return (*plane, self.samples)
        return (self.samples, *plane) if self.planar else plane

    @property
    def last_rows(self) -> int:
        """Rows of the last strip that exist in the image; a tile has all of its rows."""
        rows = self.encoding.chunks[0]
        return rows if self.tiled else (self.height - 1) % rows + 1


def read(page: TiffPage) -> Image:
    """The image of an IFD. Raises Unsupported for samples that no numpy type holds, and the like."""
    width, height = number(page, 256), number(page, 257)
    if not width or not height:
        raise Unsupported(f"its image has {width} by {height} pixels", "fetch it again")
    samples = number(page, 277, 1)
    planar = number(page, 284, 1) == 2 and samples > 1
    tiled = 324 in page.tags or 322 in page.tags
    if number(page, 32997, 1) != 1:
        raise Unsupported("its image has a depth", WITHIN)
    rows = number(page, 323) if tiled else min(number(page, 278, height), height)
    columns = number(page, 322) if tiled else width
    if not rows or not columns:
        raise Unsupported(
            f"its tiles or strips have {rows} rows and {columns} columns", "fetch it again"
        )
    inner = 1 if planar else samples
    extra = values(page, 338)
    kind, bits = samples_of(page, samples)
    encoding = Encoding(
        compression=number(page, 259, 1),
        predictor=number(page, 317, 1),
        photometric=number(page, 262, 1),
        samples=inner,
        alpha=bool(extra) and extra[-1] in ALPHA,
        dtype=kind,
        chunks=(rows, columns, samples) if inner > 1 else (rows, columns),
        tables=page.tags.valueof(347),
        lerc=(*values(page, 50674), 0, 0)[1],
        bits=bits,
        reversed=number(page, 266, 1) == 2,
    )
    return Image(width, height, samples, planar, tiled, encoding)


def number(page: TiffPage, code: int, default: int = 0) -> int:
    """The first value of a tag."""
    found = values(page, code)
    return int(found[0]) if found else default


def values(page: TiffPage, code: int) -> tuple[int, ...]:
    """All values of a tag of numbers; empty where the file has none."""
    found = page.tags.valueof(code)
    if found is None:
        return ()
    return tuple(found) if isinstance(found, tuple | list | np.ndarray) else (found,)


def samples_of(page: TiffPage, samples: int) -> tuple[str, int]:
    """The numpy name of the samples in the file's byte order, and their bits where those are no whole bytes.

    Raises Unsupported if they differ, or no numpy type holds them.
    """
    bits = set(values(page, 258) or (1,))
    formats = set(values(page, 339) or (1,))
    if len(bits) > 1 or len(formats) > 1:
        raise Unsupported(
            f"its {samples} samples differ in width or kind ({sorted(bits)} bits)", WITHIN
        )
    width, kind = bits.pop(), KINDS.get(formats.pop())
    if kind is None:
        raise Unsupported("its samples are complex integers", WITHIN)
    if width in WIDTHS[kind]:
        order = page.parent.byteorder if width > 8 else "|"
        return np.dtype(f"{order}{kind}{width // 8}").str, 0
    if width == 24:
        # GDAL 3.13 packs them most significant byte first, libtiff 4.7 takes the file's order
        raise Unsupported("its samples have 24 bits, whose bytes writers order differently", WITHIN)
    if kind != "u" or not 0 < width < 32:
        raise Unsupported(f"its samples have {width} bits, which no numpy type has", WITHIN)
    return np.dtype(f"<u{1 if width < 8 else 2 if width < 16 else 4}").str, width


def located(page: TiffPage, image: Image) -> tuple[Ints, Ints]:
    """Offset and stored size of every chunk on the grid, ``ABSENT`` for a sparse one.

    Raises Unsupported where the tags do not name as many as there are.
    """
    grid = grid_of(image.shape, image.chunks)
    count = math.prod(grid)
    codes = (324, 325) if 324 in page.tags else (273, 279)
    offset, size = (np.array(values(page, code), np.int64) for code in codes)
    if not size.size and count == 1 and image.encoding.compression == 1:
        size = np.array([nbytes(image, image.last_rows)])
    for what, found in (("offsets", offset), ("sizes", size)):
        if found.size < count:
            raise Unsupported(
                f"its tags name {found.size} {what} of {count} tiles or strips", "fetch it again"
            )
    offset, size = offset[:count].reshape(grid), size[:count].reshape(grid)
    absent = size == 0
    # GDAL reads a size of zero as sparse, but libtiff 4.7 guesses the size of a single strip
    odd = (offset == 0) & ~absent if count > 1 else (offset == 0) != absent
    if odd.any():
        key = tuple(np.argwhere(odd)[0].tolist())
        raise Unsupported(
            f"its tags give chunk {list(key)} the offset {int(offset[key])} and the size {int(size[key])}",
            "fetch it again",
        )
    offset[absent] = size[absent] = ABSENT
    return offset, size


def nbytes(image: Image, rows: int) -> int:
    """Decoded bytes of ``rows`` rows of a chunk."""
    return rows * image.encoding.row


def chunked(page: TiffPage, image: Image, *, split: bool) -> tuple[Chunks, dict[str, Any]]:
    """The chunk table and the codec of an image.

    A last strip of fewer rows is cut to pieces that all strips are made of where nothing is
    compressed and ``split`` allows it; otherwise the codec says so with ``tiff:strips``.
    """
    coded = codec(image.encoding)
    offset, size = located(page, image)
    rows, last = image.encoding.chunks[0], image.last_rows
    if image.encoding.compression == 1:
        offset, size, last = plain(image, offset, size)
        if last != rows and split:
            return pieces(image, offset, math.gcd(rows, last)), coded
    if last != rows:
        strips = {"id": "tiff:strips", "rows": rows, "last": last}
        coded["filters"] = [strips, *(coded["filters"] or ())]
    return Chunks("chunked", image.chunks, offset, size), coded


def plain(image: Image, offset: Ints, size: Ints) -> tuple[Ints, Ints, int]:
    """Sizes of uncompressed chunks as their shape has them, and the rows of the last strip.

    Raises Unsupported for a chunk of fewer bytes; further bytes are no pixels.
    """
    rows, last = image.encoding.chunks[0], image.last_rows
    wanted = np.full(size.shape, nbytes(image, rows))
    bottom = size.ndim - (3 if image.chunky else 2)
    end = tuple([slice(None)] * bottom + [slice(-1, None)])
    if last != rows and (size[end] < wanted[end]).any():
        wanted[end] = nbytes(image, last)
    else:
        last = rows
    short = (offset != ABSENT) & (size < wanted)
    if short.any():
        key = tuple(np.argwhere(short)[0].tolist())
        raise Unsupported(
            f"chunk {list(key)} has {int(size[key])} bytes of {int(wanted[key])}", "fetch it again"
        )
    return offset, np.where(offset == ABSENT, ABSENT, wanted), last


def pieces(image: Image, offset: Ints, rows: int) -> Chunks:
    """Uncompressed strips cut to ``rows`` rows each."""
    axis = image.dims.index("y")
    times = image.encoding.chunks[0] // rows
    chunks = tuple(rows if i == axis else n for i, n in enumerate(image.chunks))
    grid = grid_of(image.shape, chunks)
    step = nbytes(image, rows)
    keys = np.arange(grid[axis])
    strip = np.take(offset, keys // times, axis=axis)
    within = (keys % times * step).reshape([-1 if i == axis else 1 for i in range(len(grid))])
    absent = strip == ABSENT
    return Chunks(
        "chunked",
        chunks,
        np.where(absent, ABSENT, strip + within),
        np.where(absent, ABSENT, step).astype(np.int64),
    )
