"""GeoTIFF, COG and BigTIFF: where the bytes of every tile or strip lie, and where its pixels lie.

The first image of a file is its array; a TIFF names none, so that the one wanted name is its, or else
``data``. Overviews are ``overview_1``, ``overview_2`` …, other images ``page_2`` … and transparency masks
``mask_3`` … by the number of their IFD, and come only when they are wanted by name. Axes are in the order of the bytes: (y, x), (y, x, band) where a chunk holds
all samples of its pixels, (band, y, x) where each band has chunks of its own.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
import tifffile
from tifffile import TiffFile, TiffPage

from byterefs import literals
from byterefs.errors import ScanError
from byterefs.model import ArrayMeta, Source, SourceArray, SourceScan
from byterefs.scanners import _tiff_codec, _tiff_geo, _tiff_ifd, _tiff_words
from byterefs.scanners._common import (
    Attributes,
    Seen,
    Unsupported,
    opened,
    record,
    refuse_past,
    wanted,
)
from byterefs.scanners._derived import derived
from byterefs.scanners._recorded import recorded, together

MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
OTHER = re.compile(r"(overview|page|mask)_[1-9]\d*")
"""names of images that are not the first"""
REDUCED, MASK = 1, 4
"""bits of NewSubfileType"""
DECIDING = {254, *range(256, 260), 262, 266, 273, *range(277, 280), 284, 317, *range(322, 326)} | {
    *(338, 339, 347, 32997, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113, 50674)
}
"""tags without which pixels, or their place, would be other ones"""
BROKEN = (
    tifffile.TiffFileError,
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    struct.error,
    TypeError,
    ValueError,
    ZeroDivisionError,
)
"""what tifffile raises for tags that are cut off or are no tags"""
AGAIN = "fetch it again, name its format in scan.format or set scan: {on_error: skip}"


def recognises(file: BinaryIO) -> bool:
    """Whether the file starts as a TIFF or BigTIFF of either byte order does."""
    return file.read(4) in MAGICS


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The wanted images of one TIFF with their axes; see :func:`byterefs.scanners.scan`."""
    with opened(source.source) as seen, tags(source.source, seen) as file:
        pages = images(file, arrays)
        chosen = wanted(source.source, pages, arrays)
        look = _Look(source.source, seen, split)
        items = {
            name: recorded(source.source, name, True, partial(look.image, name, *pages[name]))
            for name in sorted(chosen)
        }
        main, (_, page) = next(iter(pages.items()))
        axes, root = look.whole(page)
        if main in chosen:
            items |= axes
    return together(source, seen, items, root)


@contextmanager
def tags(source: str, seen: Seen) -> Iterator[TiffFile]:
    """The file's tags; ScanError for a file whose tags cannot be read, now or while they are looked at."""
    said: list[str] = []

    def hear(entry: logging.LogRecord) -> bool:
        said.append(entry.getMessage())
        return False

    logger = logging.getLogger("tifffile")
    logger.addFilter(hear)
    try:
        with TiffFile(seen.file, name=source) as file:
            yield file
    except (ScanError, *BROKEN) as error:
        refuse_unread(source, said)
        if isinstance(error, ScanError):
            raise
        raise ScanError(
            f"{source}: its tags cannot be read ({' '.join(str(error).split())}); {AGAIN}"
        ) from error
    finally:
        logger.removeFilter(hear)
    refuse_unread(source, said)


def refuse_unread(source: str, said: Sequence[str]) -> None:
    """Raise ScanError for a tag that tifffile went on without, which only its log says."""
    for text in said:
        code = re.search(r"TiffTag (\d+) @", text)
        if code and int(code[1]) in DECIDING:
            raise ScanError(f"{source}: tag {code[1]} cannot be read ({text}); {AGAIN}")


def images(file: TiffFile, arrays: Sequence[str]) -> dict[str, tuple[int, TiffPage]]:
    """The images of a file by name, each with the number of its IFD; the first one stands first.

    IFDs beyond the first are read only if ``arrays`` names one.
    """
    asked = [name.strip("/") for name in arrays]
    names = [name for name in asked if not OTHER.fullmatch(name)]
    found = {names[0] if len(names) == 1 else "data": (1, directory(file, 0))}
    overviews = 0
    for i in range(1, len(file.pages) if len(names) < len(asked) else 1):
        kind = _tiff_ifd.number(directory(file, i), 254)
        found[named(kind, i + 1, overviews := overviews + reduced(kind))] = (
            i + 1,
            directory(file, i),
        )
    return found


def reduced(kind: int) -> bool:
    """Whether a NewSubfileType is that of an overview, and of no mask."""
    return bool(kind & REDUCED) and not kind & MASK


def named(kind: int, ifd: int, overviews: int) -> str:
    """The name of an image that is not the first, by its NewSubfileType and the overviews up to it."""
    if kind & MASK:
        return f"mask_{ifd}"
    return f"overview_{overviews}" if reduced(kind) else f"page_{ifd}"


def directory(file: TiffFile, index: int) -> TiffPage:
    """One IFD with all of its tags."""
    found = file.pages[index]
    if not isinstance(found, TiffPage):
        raise ValueError(f"IFD {index + 1} has no tags of its own")
    return found


@dataclass(frozen=True, slots=True)
class _Look:
    """What every image of one file is looked at with."""

    source: str
    seen: Seen
    split: bool

    def image(self, name: str, ifd: int, page: TiffPage) -> SourceArray:
        """The record of one image; Unsupported if it cannot be referenced without being wrong."""
        image = _tiff_ifd.read(page)
        found, codec = _tiff_ifd.chunked(page, image, split=self.split)
        refuse_past(found, self.seen.size)
        dtype = image.encoding.stored
        info = _tiff_codec.info(image.encoding, image.planar) + (f"; IFD={ifd}" if ifd > 1 else "")
        fill, (attrs, dtypes) = _tiff_words.image(page, image.samples, dtype, found)
        suffix = f"_{name}" if ifd > 1 else ""
        if not suffix and _tiff_geo.crs(self.source, page):
            attrs, dtypes = (
                {**attrs, "grid_mapping": _tiff_geo.MAPPING},
                {**dtypes, "grid_mapping": "str"},
            )
        meta = ArrayMeta(
            array=name,
            dims=tuple(f"{dim}{suffix}" for dim in image.dims),
            shape=image.shape,
            chunks=found.chunks,
            dtype=dtype,
            fill=literals.fill_text(fill),
            codec=codec,
            info=info,
            attrs=attrs,
            attr_dtypes=dtypes,
            layout=found.layout,
        )
        return record(meta, found, None, False)

    def whole(self, page: TiffPage) -> tuple[dict[str, SourceArray], Attributes]:
        """The axes of the first image, and the root attributes of the file."""
        try:
            return self.axes(page), _tiff_words.root(page)
        except Unsupported as why:
            raise ScanError(f"{self.source}: {why}; {why.out}") from why

    def axes(self, page: TiffPage) -> dict[str, SourceArray]:
        """Pixel centres x and y and the grid mapping, as far as the file has them.

        Of a rotated grid, whose x and y are no axes, the grid mapping alone says where pixels lie.
        """
        transform = _tiff_geo.transform(page)
        mapping, x, y = _tiff_geo.crs(self.source, page) or ({}, {}, {})
        found: dict[str, SourceArray] = {}
        if transform is not None and not _tiff_geo.turned(transform):
            left, width, _, top, _, height = transform
            across = _tiff_geo.centres(left, width, _tiff_ifd.number(page, 256))
            down = _tiff_geo.centres(top, height, _tiff_ifd.number(page, 257))
            found["x"] = derived("x", ("x",), across, {**x, "axis": "X"})
            found["y"] = derived("y", ("y",), down, {**y, "axis": "Y"})
        elif transform is not None and not mapping:
            raise Unsupported(
                f"its grid is rotated (GeoTransform {' '.join(map(repr, transform))}), so that x and y are no "
                "axes, and it has no CRS whose grid mapping could say so",
                "warp it with gdalwarp, or leave it out with source.pattern",
            )
        if transform is not None and mapping:
            mapping = {**mapping, "GeoTransform": " ".join(map(repr, transform))}
        if mapping:
            found[_tiff_geo.MAPPING] = derived(_tiff_geo.MAPPING, (), np.zeros((), "<i4"), mapping)
        return found
