"""What a TIFF says in words: nodata, scale, offset, units and names, as CF attributes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import numpy as np
from tifffile import TiffPage

from byterefs.model import ABSENT
from byterefs.scanners._common import Attributes, Chunks, Unsupported
from byterefs.scanners._derived import attributes
from byterefs.scanners._tiff_codec import WITHIN
from byterefs.scanners._tiff_geo import is_point

NODATA, METADATA = 42113, 42112
TEXTS = {
    269: "TIFFTAG_DOCUMENTNAME",
    270: "TIFFTAG_IMAGEDESCRIPTION",
    305: "TIFFTAG_SOFTWARE",
    306: "TIFFTAG_DATETIME",
    315: "TIFFTAG_ARTIST",
    316: "TIFFTAG_HOSTCOMPUTER",
    33432: "TIFFTAG_COPYRIGHT",
}
"""tags of text, by GDAL's names"""


def image(
    page: TiffPage, samples: int, dtype: str, chunks: Chunks
) -> tuple[np.generic | None, Attributes]:
    """What an absent chunk reads as (None: zero), and the CF attributes of an image.

    Raises Unsupported for bands with different scales or units, and where a nodata value that the
    samples cannot hold stands for absent chunks.
    """
    found: dict[str, Any] = {}
    fill, text = nodata(page, dtype)
    if fill is not None:
        found["_FillValue"] = fill
    elif text is not None:
        if (chunks.offset == ABSENT).any():
            raise Unsupported(
                f"its absent chunks read as {text}, which {dtype} cannot hold", WITHIN
            )
        found["GDAL_NODATA"] = text
    roles = items(page)[1]
    for role, name, default in (("scale", "scale_factor", 1.0), ("offset", "add_offset", 0.0)):
        given = shared(roles.get(role, {}), samples, role, str(default))
        if given is not None:
            found[name] = np.float64(given)
    units = shared(roles.get("unittype", {}), samples, "units", "")
    if units:
        found["units"] = units
    names = roles.get("description", {})
    if names:
        found["long_name"] = (
            names[0] if samples == 1 else [names.get(i, "") for i in range(samples)]
        )
    return fill, attributes(found)


def shared(by_sample: Mapping[int, str], samples: int, what: str, default: str) -> str | None:
    """The one value that all bands have; None where none is given. Raises Unsupported if they differ."""
    if not by_sample:
        return None
    given = {by_sample.get(i, default) for i in range(samples)}
    if len(given) > 1:
        raise Unsupported(
            f"its bands differ in {what} ({', '.join(sorted(given))}), and an array has one", WITHIN
        )
    return given.pop()


def nodata(page: TiffPage, dtype: str) -> tuple[np.generic | None, str | None]:
    """The nodata value in the dtype of the samples, and its text; (None, text) if the dtype cannot hold it."""
    text = page.tags.valueof(NODATA)
    if text is None:
        return None, None
    text = str(text).strip().rstrip("\0").strip()
    kind = np.dtype(dtype)
    number = parsed(text, kind)
    if number is None:
        return None, text
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        if number != number or number != int(number) or not bounds.min <= number <= bounds.max:
            return None, text
        number = int(number)
    with np.errstate(over="ignore"):
        scalar: np.generic = np.array([number]).astype(kind)[0]
    return scalar, text


def parsed(text: str, kind: np.dtype[Any]) -> Any:
    """A nodata text as a number, of an integer with all its digits; None if it is none."""
    for number in (int, float) if kind.kind in "iu" else (float,):
        try:
            return number(text)
        except ValueError:
            continue
    return None


def items(page: TiffPage) -> tuple[dict[str, str], dict[str, dict[int, str]]]:
    """GDAL's metadata: items of the whole file, and by role (scale, offset, …) those of each sample."""
    whole: dict[str, str] = {}
    roles: dict[str, dict[int, str]] = {}
    text = page.tags.valueof(METADATA)
    if not text:
        return whole, roles
    try:
        top = ET.fromstring(text)
    except ET.ParseError as error:
        raise Unsupported(f"its GDAL metadata is no XML ({error})", WITHIN) from error
    for item in top.iter("Item"):
        value, sample, role = item.text or "", item.get("sample"), item.get("role")
        if role is not None:
            roles.setdefault(role, {})[int(sample or 0)] = value
        elif sample is None and item.get("domain") is None and item.get("name"):
            whole[str(item.get("name"))] = value
    return whole, roles


def root(page: TiffPage) -> Attributes:
    """Root attributes: GDAL's items of the whole file, and the tags of text by GDAL's names."""
    found: dict[str, Any] = dict(items(page)[0])
    for code, name in TEXTS.items():
        value = page.tags.valueof(code)
        if isinstance(value, str) and value:
            found[name] = value
    found["AREA_OR_POINT"] = "Point" if is_point(page) else "Area"
    return attributes(
        {n: v for n, v in found.items() if all(c.isprintable() or c in "\t\n" for c in v)}
    )
