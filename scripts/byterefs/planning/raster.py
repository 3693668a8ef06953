"""Classic rasters (TIFF) in a multidimensional VRT: bands as sources, their CRS, and back to placements.

GDAL has no multidimensional view of a TIFF file, but an mdim VRT may read a band of one as an array
of (y, x) and transpose it into more dimensions (research/measured.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from byterefs.model import Array, Key, Placement
from byterefs.planning.driver import PREFIX

DRIVER = "DRIVER=GTiff"
"""how ``info`` begins for an array of a TIFF"""
AXES = ("band", "y", "x")
"""what the axes of an image are called; an image that is not the first has ``y_overview_1``"""


def is_raster(array: Array) -> bool:
    """Whether the chunks of an array lie in TIFFs."""
    return array.info.startswith(DRIVER)


def is_grib(array: Array) -> bool:
    """Whether the chunks of an array are GRIB messages."""
    return array.info.startswith("DRIVER=GRIB")


def axis(dims: Sequence[str], name: str) -> int | None:
    """Where the axis ``y``, ``x`` or ``band`` of an image stands among dimensions."""
    return next((i for i, dim in enumerate(dims) if dim.split("_")[0] == name), None)


def directory(info: str) -> str:
    """GDAL's prefix of an image that is not the first of its file: ``GTIFF_DIR:3:``; else nothing."""
    words = dict(word.split("=", 1) for word in info.split("; ") if "=" in word)
    return f"GTIFF_DIR:{words['IFD']}:" if "IFD" in words else ""


def without_directory(path: str) -> str:
    """A path without the prefix of :func:`directory` or of a driver."""
    return path.split(":", 2)[2] if path.startswith("GTIFF_DIR:") else path.removeprefix(PREFIX)


def sources(a: Array, published: Callable[[str], str]) -> Iterator[str]:
    """One ``Source`` per placement and band, in the order of dest."""
    band = axis(a.dims, "band")
    shown = [a.dims[i] if i == band else dim.split("_")[0] for i, dim in enumerate(a.dims)]
    transpose = ",".join({"y": "0", "x": "1"}.get(dim, "-1") for dim in shown)
    for p in a.placements:
        path = directory(a.info) + published(p.source)
        for i in range(1 if band is None else p.count[band]):
            one = p if band is None else part(p, band, i)
            offset = [0 if n == band else s for n, s in enumerate(one.src_offset)]
            yield "<Source>"
            yield f"  <SourceFilename>{escape(path)}</SourceFilename>"
            yield f"  <SourceBand>{1 if band is None else one.src_offset[band] + 1}</SourceBand>"
            yield f"  <SourceTranspose>{transpose}</SourceTranspose>"
            yield f'  <SourceSlab offset="{joined(offset)}" count="{joined(one.count)}" step="{joined([1] * len(offset))}" />'
            yield f'  <DestSlab offset="{joined(one.dest)}" />'
            yield "</Source>"


def part(p: Placement, band: int, i: int) -> Placement:
    """The placement of the ``i``-th band of a placement alone."""
    moved = [
        tuple(n + i * (k == band) for k, n in enumerate(key)) for key in (p.src_offset, p.dest)
    ]
    count = tuple(1 if k == band else n for k, n in enumerate(p.count))
    return p._replace(src_offset=moved[0], count=count, dest=moved[1])


def joined(items: Sequence[int]) -> str:
    """``1,1,720,1440``."""
    return ",".join(map(str, items))


def of_band(p: Placement, dims: Sequence[str], number: int) -> Placement:
    """A ``SourceBand`` as a placement: the band is the offset along its axis."""
    band = axis(dims, "band")
    if band is None:
        return p
    return p._replace(
        src_offset=tuple(number - 1 if k == band else n for k, n in enumerate(p.src_offset))
    )


def whole(placements: Sequence[Placement], dims: Sequence[str]) -> tuple[Placement, ...]:
    """Placements of single bands joined to those of runs of bands: the inverse of :func:`sources`."""
    band = axis(dims, "band")
    out: list[Placement] = []
    for p in placements:
        if band is not None and out and follows(out[-1], p, band):
            count: Key = tuple(n + (k == band) for k, n in enumerate(out[-1].count))
            out[-1] = out[-1]._replace(count=count)
        else:
            out.append(p)
    return tuple(out)


def follows(run: Placement, p: Placement, band: int) -> bool:
    """Whether ``p`` is the next band of ``run``."""
    after = part(run, band, run.count[band])
    return p == after._replace(count=p.count) and p.count[band] == 1


def srs(a: Array, arrays: Mapping[str, Array]) -> Iterator[str]:
    """The CRS of an image, with the place of its axes among the array's dimensions."""
    mapping = arrays.get(a.grid_mapping or "")
    wkt = mapping.attrs.get("crs_wkt") if mapping else None
    y, x = axis(a.dims, "y"), axis(a.dims, "x")
    if not is_raster(a) or not isinstance(wkt, str) or y is None or x is None:
        return
    from osgeo import osr

    system = osr.SpatialReference()
    system.ImportFromWkt(wkt)
    system.SetAxisMappingStrategy(osr.OAMS_TRADITIONAL_GIS_ORDER)
    order = [{1: x, 2: y}[n] + 1 for n in system.GetDataAxisToSRSAxisMapping() if n in (1, 2)]
    yield f'<SRS dataAxisToSRSAxisMapping="{joined(order)}">{escape(wkt)}</SRS>'
