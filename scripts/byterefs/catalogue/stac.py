"""A publication as a STAC collection with one item per cube, and a catalogue over all datasets.

Nothing here is the time of writing: dates are those of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pystac
from pystac.extensions.datacube import SCHEMA_URI
from pystac.extensions.projection import SCHEMA_URI as PROJECTION

from byterefs import urls
from byterefs.catalogue import cube, projected, times
from byterefs.catalogue.announced import Form, Publication
from byterefs.catalogue.cube import Cube
from byterefs.view import View

HERE = "https://byterefs.invalid/"
"""where pystac takes the tree to lie while links are made relative; it stands in no file"""
TYPES: Mapping[str, str] = {
    "mdim_vrt": "application/xml",
    "kerchunk_parquet": "application/vnd.apache.parquet",
    "mdim_refs": "application/vnd.sqlite3",
    "icechunk": "application/vnd.zarr; version=3",
    "parquet": "application/vnd.apache.parquet",
}
Documents = dict[str, dict[str, Any]]
"""relative path -> content"""


def documents(view: View, publication: Publication) -> Documents:
    """``collection.json`` and one item per cube, linked relatively."""
    made = collection(view, publication)
    for found in cube.cubes(view):
        made.add_item(item(view, publication, found))
    made.normalize_hrefs(HERE, strategy=layout())
    out: Documents = {"collection.json": made.to_dict(transform_hrefs=True)}
    for each in made.get_items():
        href = str(each.get_self_href()).removeprefix(HERE)
        out[href] = each.to_dict(transform_hrefs=True)
    return {name: without_self(content) for name, content in sorted(out.items())}


def layout() -> pystac.layout.HrefLayoutStrategy:
    """Items in one folder, flat."""
    return pystac.layout.CustomLayoutStrategy(
        item_func=lambda item, parent: f"{parent}/items/{item.id}.json"
    )


def without_self(content: dict[str, Any]) -> dict[str, Any]:
    """A document that may be moved: relative links, none to itself."""
    return {**content, "links": [link for link in content["links"] if link["rel"] != "self"]}


def collection(view: View, publication: Publication) -> pystac.Collection:
    """The dataset."""
    found = cube.cubes(view)
    spans = [span(view, c) for c in found]
    grids = [projected.projected(view, c) for c in found]
    boxes = [bounds(view, c, grid) for c, grid in zip(found, grids, strict=True)]
    extent = pystac.Extent(
        pystac.SpatialExtent([cube.union(boxes)]),
        pystac.TemporalExtent([[min(s[0] for s in spans), max(s[1] for s in spans)]]),
    )
    made = pystac.Collection(
        id=view.dataset,
        title=title(view),
        description=str(view.root.get("summary") or title(view)),
        extent=extent,
        license="other",
        catalog_type=pystac.CatalogType.SELF_CONTAINED,
        providers=providers(view),
        stac_extensions=[SCHEMA_URI],
        extra_fields={
            "cube:dimensions": merged(map(partial(dimensions, view), found, grids)),
            "cube:variables": merged(cube.variables(c) for c in found),
        },
    )
    for form in publication.forms:
        made.add_asset(form.form, asset(form))
    return made


def dimensions(
    view: View, found: Cube, grid: projected.Projected | None
) -> dict[str, dict[str, Any]]:
    """``cube:dimensions`` of a cube, its x and y in the CRS of its grid.

    The datacube extension takes EPSG 4326 where a spatial dimension names none, so axes that are neither
    in degrees nor of a known projection are no spatial dimensions here.
    """
    out = cube.dimensions(view, found)
    for dimension in out.values():
        if dimension.get("axis") not in {"x", "y"} or "reference_system" in dimension:
            continue
        if grid is not None:
            dimension["reference_system"] = grid.wkt
        else:
            dimension["type"] = "custom"
            del dimension["axis"]
    return out


def merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the cubes have together; of two of a name the first."""
    out: dict[str, Any] = {}
    for part in parts:
        out = {**part, **out}
    return out


def item(view: View, publication: Publication, found: Cube) -> pystac.Item:
    """A cube."""
    start, end = span(view, found)
    grid = projected.projected(view, found)
    box = bounds(view, found, grid)
    made = pystac.Item(
        id=item_id(view.dataset, found.group),
        geometry=None if box is None else polygon(box),
        bbox=box,
        datetime=None,
        start_datetime=start,
        end_datetime=end,
        properties={
            "title": f"{title(view)}: {found.group}" if found.group else title(view),
            "cube:dimensions": dimensions(view, found, grid),
            "cube:variables": cube.variables(found),
            **({} if grid is None else projection(grid)),
        },
        stac_extensions=[SCHEMA_URI] if grid is None else [SCHEMA_URI, PROJECTION],
    )
    for form in publication.forms:
        made.add_asset(form.form, asset(form))
    return made


def bounds(view: View, found: Cube, grid: projected.Projected | None) -> list[float] | None:
    """The box of a cube: by its longitudes and latitudes, else by its projection; None where neither is known."""
    box = cube.bounds(view, found)
    if box is not None or grid is None:
        return box
    return grid.box


def projection(grid: projected.Projected) -> dict[str, Any]:
    """What STAC's projection extension tells of a grid."""
    return {
        "proj:code": grid.code,
        "proj:wkt2": grid.wkt,
        "proj:bbox": grid.plane,
        "proj:shape": grid.shape,
    }


def item_id(dataset: str, group: str) -> str:
    """A name that is one path segment."""
    return f"{dataset}-{urls.file_name(group).replace('/', '-')}" if group else dataset


def title(view: View) -> str:
    """The dataset's title, or its name."""
    return view.title or view.dataset


def asset(form: Form) -> pystac.Asset:
    """A form, at the address of its file or folder."""
    return pystac.Asset(
        href=form.href,
        title=form.form,
        media_type=TYPES[form.kind],
        roles=["data"],
        extra_fields={"byterefs:dsn": form.dsn, "byterefs:kind": form.kind},
    )


def polygon(box: list[float]) -> dict[str, Any]:
    """The box as GeoJSON, counterclockwise."""
    west, south, east, north = box
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def span(view: View, found: Cube) -> tuple[datetime, datetime]:
    """First and last step; of a cube without a time axis, when its first and last source were written."""
    for array in found.arrays:
        axis = times.time_axis(view, array.array)
        if axis is not None and axis.shape[0]:
            steps = times.instants(axis)
            return as_utc(steps[0]), as_utc(steps[-1])
    written = sorted(s.mtime for s in view.sources if s.mtime is not None) or [0]
    return datetime.fromtimestamp(written[0], UTC), datetime.fromtimestamp(written[-1], UTC)


def as_utc(step: Any) -> datetime:
    """An instant of any calendar as the day of that name; the 30th of February is the 28th."""
    day = step.day
    while True:
        try:
            return datetime(
                step.year, step.month, day, step.hour, step.minute, step.second, tzinfo=UTC
            )
        except ValueError:
            day -= 1


def providers(view: View) -> list[pystac.Provider] | None:
    """Who made the data, if the root attributes say so."""
    name = view.root.get("institution") or view.root.get("creator_name")
    return [pystac.Provider(str(name), roles=[pystac.ProviderRole.PRODUCER])] if name else None


def catalogue(datasets: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The root catalogue: dataset -> title and address of its collection."""
    made = pystac.Catalog(
        id="byterefs", title="byterefs", description="Archives published as virtual arrays"
    )
    for _, (name, href) in sorted(datasets.items()):
        made.add_link(pystac.Link("child", href, media_type=pystac.MediaType.JSON, title=name))
    return without_self(made.to_dict(include_self_link=False))
