"""The plan in a multidimensional VRT: ours, that of ``gdal mdim mosaic``, one that somebody hands over."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from xml.sax.saxutils import escape, unescape

import numpy as np

from byterefs.errors import PlanError
from byterefs.model import Key, Placement
from byterefs.planning import raster
from byterefs.planning.vrt import joined
from byterefs.urls import to_gdal

SOURCE_PARTS = {"SourceFilename", "SourceArray", "SourceSlab", "DestSlab"}
"""what a ``Source`` may say if its chunks are to be referenced"""
BAND_PARTS = {"SourceBand", "SourceTranspose"}
FILENAME = re.compile(r"(<SourceFilename[^>]*>)([^<]*)(</SourceFilename>)")


@dataclass(frozen=True)
class VrtArray:
    """One array of a VRT: its place in the plan."""

    array: str
    dims: tuple[str, ...]
    shape: Key
    placements: tuple[Placement, ...]
    values: np.ndarray | None
    """inline or regularly spaced values"""


@dataclass(frozen=True)
class VrtPlan:
    """What an mdim VRT says of sources and where they lie."""

    sizes: Mapping[str, int]
    """of the root's dimensions"""
    arrays: Mapping[str, VrtArray]


def read(text: str, base: str, name: str) -> VrtPlan:
    """The placements in an mdim VRT. ``base`` is the folder that ``relativeToVRT`` counts from.

    Raises PlanError, naming the VRT as ``name``, for a step other than 1 and for what is no mdim VRT.
    """
    try:
        top = ET.fromstring(text).find("Group")
    except ET.ParseError as e:
        raise PlanError(f"{name}: not XML ({e}); plan.vrt must name a multidimensional VRT") from e
    if top is None:
        raise PlanError(
            f"{name}: no <Group>, so no multidimensional VRT; make one with `gdal mdim mosaic`"
        )
    sizes: dict[str, int] = {}
    arrays: dict[str, VrtArray] = {}
    walk(top, "/", base, name, sizes, arrays)
    return VrtPlan({d.lstrip("/"): n for d, n in sizes.items() if d.count("/") == 1}, arrays)


def walk(
    node: ET.Element,
    path: str,
    base: str,
    name: str,
    sizes: dict[str, int],
    arrays: dict[str, VrtArray],
) -> None:
    """Collect the dimensions and arrays of a group and of the groups in it; ``sizes`` by full name."""
    for d in node.findall("Dimension"):
        sizes[path + d.attrib["name"]] = int(d.attrib["size"])
    for a in node.findall("Array"):
        own = path.lstrip("/") + a.attrib["name"]
        refs = [resolved(ref.attrib["ref"], path, sizes) for ref in a.findall("DimensionRef")]
        dims = tuple(ref.rsplit("/", 1)[-1] for ref in refs)
        shape = tuple(sizes[ref] for ref in refs)
        places = tuple(placement(s, own, base, name, shape, dims) for s in a.findall("Source"))
        if a.find("Source/SourceBand") is not None:
            places = raster.whole(places, dims)
        arrays[own] = VrtArray(own, dims, shape, places, listed_values(a, shape))
    for g in node.findall("Group"):
        walk(g, f"{path}{g.attrib['name']}/", base, name, sizes, arrays)


def resolved(ref: str, path: str, sizes: Mapping[str, int]) -> str:
    """The full name of a dimension; a short name is that of the nearest group that has it, as in GDAL."""
    while not ref.startswith("/"):
        if path + ref in sizes or path == "/":
            return path + ref
        path = path[:-1].rpartition("/")[0] + "/"
    return ref


def placement(
    s: ET.Element, array: str, base: str, name: str, shape: Key, dims: Sequence[str]
) -> Placement:
    """A ``Source`` as a placement. Raises PlanError for a step other than 1."""
    parts = {c.tag: c for c in s}
    said = {tag: c.text or "" for tag, c in parts.items()}
    file, band = parts.get("SourceFilename"), said.get("SourceBand")
    inner = said.get("SourceArray") if band is None else array
    if file is None or not file.text or inner is None:
        raise PlanError(f"{name}: a <Source> of array {array!r} names no file or no array")
    odd = () if parts.keys() == SOURCE_PARTS else odd_parts(parts.keys(), said)
    if odd:
        raise PlanError(
            f"{name}: array {array!r} reads {file.text} through <{'>, <'.join(odd)}>, and chunks can be referenced only "
            f"as they lie in the source; take it out of the VRT"
        )
    source = raster.without_directory(file.text)
    # gdal mdim mosaic 3.13 writes relativetoVRT, its documentation relativeToVRT; GDAL reads both
    if file.attrib and {k.lower(): v for k, v in file.attrib.items()}.get("relativetovrt") == "1":
        source = str(Path(base).absolute() / source)
        source = str(PurePosixPath(*resolve(PurePosixPath(source).parts)))
    slab, dest = parts.get("SourceSlab"), parts.get("DestSlab")
    zero = (0,) * len(shape)
    offset = ints(slab, "offset") or zero
    step = ints(slab, "step")
    if step and any(n != 1 for n in step):
        raise PlanError(
            f"{name}: array {array!r} reads {source} with step {joined(step)}; chunks can be referenced with step 1 only"
        )
    at = ints(dest, "offset") or zero
    count = ints(slab, "count") or tuple(n - d for n, d in zip(shape, at, strict=True))
    found = Placement(source, inner.lstrip("/"), offset, count, at)
    return found if band is None else raster.of_band(found, dims, int(band))


def odd_parts(parts: Set[str], said: Mapping[str, str]) -> list[str]:
    """What a ``Source`` says beyond a slab at its place, or a band as it lies."""
    turn = numbers(said.get("SourceTranspose", ""))
    axes = [n for n in turn if n >= 0]
    # -1 is a new axis, which a band's slab is given
    band = "SourceBand" in said and axes == sorted(axes)
    known = SOURCE_PARTS | BAND_PARTS if band else SOURCE_PARTS
    if turn == tuple(range(-1, len(axes))):
        known = known | {"SourceTranspose"}  # an axis of one step before those of the source
    return sorted(parts - known)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The VRT with other source file names, e.g. those under which its sources can be read here.

    The rest of the text stays as it is: a parser would not give back how white space is escaped.
    """
    if all(to_gdal(new) == old for old, new in names.items()):
        return text

    def other(found: re.Match[str]) -> str:
        name = unescape(found[2])
        source = raster.without_directory(name)
        if source not in names:
            return found[0]
        return found[1] + escape(name.removesuffix(source) + to_gdal(names[source])) + found[3]

    return FILENAME.sub(other, text)


def resolve(parts: Sequence[str]) -> list[str]:
    """Path parts without ``..``, textually: a link is not followed."""
    out: list[str] = []
    for part in parts:
        if part == ".." and len(out) > 1:
            out.pop()
        elif part not in (".", ".."):
            out.append(part)
    return out


def ints(node: ET.Element | None, key: str) -> Key:
    """An attribute like ``offset="0,0,0"`` as a tuple; empty where it is not given."""
    return numbers("" if node is None else node.attrib.get(key, ""))


@cache
def numbers(text: str) -> Key:
    """``0,0,0`` as a tuple; the slabs of an archive have few such texts between them."""
    return tuple(int(n) for n in text.split(",") if n.strip())


def listed_values(a: ET.Element, shape: Key) -> np.ndarray | None:
    """Inline or regularly spaced values of a whole one-dimensional array; None where there are none."""
    inline, regular = a.find("InlineValues"), a.find("RegularlySpacedValues")
    if inline is not None and inline.text and len(shape) == 1:
        values = np.array(inline.text.replace(",", " ").split(), "f8")
        return values if values.shape == shape else None
    if regular is not None and len(shape) == 1:
        start, step = float(regular.attrib["start"]), float(regular.attrib["increment"])
        return start + step * np.arange(shape[0])
    return None


def mosaic(files: Sequence[str], arrays: Sequence[str], out: Path) -> str:
    """The text of the VRT that ``gdal mdim mosaic`` makes of ``files``; PlanError in GDAL's own words if it refuses."""
    from osgeo import gdal

    from byterefs.access import vsi

    gdal.UseExceptions()
    vsi.tell(files)
    listing = out.with_suffix(".txt")
    listing.write_text("\n".join(map(to_gdal, files)))
    try:
        options = {"array": [f"/{a}" for a in arrays]} if arrays else {}
        gdal.Run("mdim mosaic", input=f"@{listing}", output=str(out), overwrite=True, **options)
    except RuntimeError as e:
        raise PlanError(
            f"gdal mdim mosaic refuses these sources: {e}; use plan.engine: coordinates"
        ) from e
    return text_of(out)


def text_of(path: Path) -> str:
    """The text of a VRT; GDAL copies attributes into it that are not UTF-8, and no plan is read from these."""
    return path.read_bytes().decode(errors="replace")
