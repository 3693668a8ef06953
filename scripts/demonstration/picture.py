"""The newest day as a map, drawn from the granule's own bytes with what the published table says.

Nothing of byterefs is imported: ``sqlite3``, ``zlib`` and ``numpy`` are enough to read the table.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Slice(NamedTuple):
    """One time step of one array, and where its bytes came from."""

    values: NDArray[np.float64]
    """(lat, lon), CF scale applied, NaN where the file has its fill value"""
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    when: datetime
    attrs: dict[str, Any]
    path: str
    offset: int
    size: int


def newest(store: Path, array: str) -> Slice:
    """The last time step of a (time, zlev, lat, lon) array whose chunk is a whole day."""
    with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as con:
        row = f'SELECT path, "offset", size FROM "refs_{array}" ORDER BY dim_0 DESC LIMIT 1'
        path, offset, size = con.execute(row).fetchone()
        dtype, chunks, codec, fill, attrs = con.execute(
            'SELECT dtype, chunks, codec, fill, attrs FROM arrays WHERE "array" = ?', (array,)
        ).fetchone()
        time, units = coordinate(con, "time")
        lat, lon = coordinate(con, "lat")[0], coordinate(con, "lon")[0]
    with open(path, "rb") as granule:
        granule.seek(offset)
        packed = decode(granule.read(size), json.loads(codec), np.dtype(dtype))
    packed = packed.reshape(json.loads(chunks))[0, 0]
    cf = json.loads(attrs)
    scaled = packed * float(cf.get("scale_factor", 1)) + float(cf.get("add_offset", 0))
    return Slice(
        values=np.where(packed == int(fill), np.nan, scaled),
        lat=lat,
        lon=lon,
        when=datetime.fromisoformat(units.removeprefix("days since ")) + timedelta(days=time[-1]),
        attrs=cf,
        path=path,
        offset=offset,
        size=size,
    )


def decode(data: bytes, codec: dict[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo what the file's writer did: first the compressor, then the filters from last to first."""
    for step in reversed([*codec["filters"], codec["compressor"]]):
        if step["id"] == "zlib":
            data = zlib.decompress(data)
        elif step["id"] == "shuffle":
            data = np.frombuffer(data, "u1").reshape(step["elementsize"], -1).T.tobytes()
        else:
            raise ValueError(f"the demo writes zlib and shuffle, the table says {step}")
    return np.frombuffer(data, dtype)


def coordinate(con: sqlite3.Connection, array: str) -> tuple[NDArray[np.float64], str]:
    """Values and units of a coordinate, which the table holds by value or as start and step."""
    dtype, shape, values, affine, attrs = con.execute(
        'SELECT dtype, shape, "values", affine, attrs FROM arrays WHERE "array" = ?', (array,)
    ).fetchone()
    units = json.loads(attrs)["units"]
    if affine is None:
        return np.frombuffer(values, dtype).astype(float), units
    spacing = json.loads(affine)
    return spacing["start"] + spacing["step"] * np.arange(json.loads(shape)[0]), units


def draw(day: Slice, source: str, out: Path) -> None:
    """Draw a world map to the PNG ``out``; ``source`` is how the caption names the file."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(12, 7), dpi=130, facecolor="white")
    axes = figure.add_axes((0.02, 0.13, 0.96, 0.76), projection="mollweide")
    axes.set_facecolor("#d8d5cf")
    x, y = np.radians(edges(day.lon) - 180), np.radians(edges(day.lat))
    mesh = axes.pcolormesh(x, y, day.values, cmap="Spectral_r", vmin=-2, vmax=32, rasterized=True)
    axes.contour(
        np.radians(day.lon - 180),
        np.radians(day.lat),
        day.values,
        levels=range(5, 31, 5),
        colors="#333333",
        linewidths=0.35,
        alpha=0.6,
    )
    axes.grid(color="#555555", linewidth=0.3, alpha=0.5)
    axes.set_xticklabels([])
    axes.tick_params(labelsize=8, labelcolor="#555555")
    bar = figure.add_axes((0.3, 0.1, 0.4, 0.022))
    figure.colorbar(mesh, cax=bar, orientation="horizontal", extend="neither")
    bar.set_xlabel(f"{day.attrs['long_name']} ({day.attrs['units']})", fontsize=10)
    bar.tick_params(labelsize=9)
    figure.text(
        0.5,
        0.945,
        f"The made-up sea on {day.when.day} {day.when:%B %Y}",
        ha="center",
        fontsize=18,
        weight="bold",
    )
    caption = f"bytes {day.offset:,} to {day.offset + day.size:,} of {source}, found in refs_sst"
    figure.text(0.5, 0.91, caption, ha="center", fontsize=9.5, color="#555555")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Software": "byterefs demo"})
    plt.close(figure)


def edges(centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cell edges of regularly spaced centres."""
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)
