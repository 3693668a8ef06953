"""GDAL's vector API on the SQLite form: a layer per array, a feature per chunk."""

import json

import chunks
from osgeo import gdal, ogr

import report

ogr.UseExceptions()
FIELDS = ("path", "offset", "size", "data")


def read(dataset, array):
    file = str(report.form(dataset, "sqlite") / "store.sqlite")
    opened = ogr.Open(file)
    layer = opened.GetLayerByName("arrays")
    layer.SetAttributeFilter(f"array = '{array}'")
    described = layer.GetNextFeature()
    row = {k: described.GetField(k) for k in ("shape", "chunks", "codec", "dtype", "fill")}
    row |= {k: json.loads(row[k]) for k in ("shape", "chunks", "codec")}
    refs = opened.GetLayerByName(f"refs_{array}")
    refs.SetAttributeFilter("present = 1")
    rows = {}
    for feature in refs:
        key = tuple(feature.GetField(f"dim_{i}") for i in range(len(row["shape"])))
        found = [
            feature.GetField(f) if feature.IsFieldSetAndNotNull(f) else None for f in FIELDS[:3]
        ]
        data = feature.GetFieldAsBinary("data") if feature.IsFieldSetAndNotNull("data") else None
        rows[key] = (*found, None if data is None else bytes(data))
    return chunks.assembled(row, rows)


report.main(f"OGR {gdal.__version__}", "sqlite", read)
