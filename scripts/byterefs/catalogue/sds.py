"""Rows of sds: one per published form, with the string that opens it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from byterefs.catalogue.announced import Publication


class Row(NamedTuple):
    """A string that opens something, what it is, and from where it comes."""

    name: str
    kind: str
    """mdim_vrt, kerchunk_parquet, mdim_refs, icechunk or parquet"""
    dsn: str
    """opens the version that was verified"""
    current: str
    """opens whatever is newest"""
    bowerbird: str
    """id of the bowerbird source that the dataset derives from; "" where the config names none"""
    dataset: str
    publication: str
    target: str
    version: str


def rows(dataset: str, bowerbird: str | None, publication: Publication) -> list[Row]:
    """One row per form of a publication."""
    return [
        Row(
            f"{dataset}.{publication.name}.{form.form}",
            form.kind,
            form.dsn,
            form.current,
            bowerbird or "",
            dataset,
            publication.name,
            publication.target,
            publication.version,
        )
        for form in publication.forms
    ]


def as_csv(found: Iterable[Row]) -> bytes:
    """The rows as CSV with a header, UTF-8, sorted by name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(sorted(found))
    return text.getvalue().encode()


def write_parquet(found: Iterable[Row], path: Path) -> None:
    """The rows as Parquet, sorted by name."""
    ordered = sorted(found)
    columns = {
        name: pa.array([row[i] for row in ordered], pa.string())
        for i, name in enumerate(Row._fields)
    }
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)


def from_csv(data: bytes) -> list[Row]:
    """The rows of :func:`as_csv`."""
    found: Iterable[Mapping[str, str]] = csv.DictReader(io.StringIO(data.decode()))
    return [Row(**row) for row in found]
