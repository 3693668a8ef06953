"""Which files below a folder are data: by content, whatever their names are."""

from __future__ import annotations

import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from byterefs import scanners
from byterefs.errors import ScanError
from byterefs.model import Source
from byterefs.proving import stores
from tally import referring

log = logging.getLogger(__name__)

DATA_ENDINGS = frozenset(
    [
        ".nc",
        ".nc3",
        ".nc4",
        ".cdf",
        ".netcdf",
        ".h5",
        ".hdf",
        ".hdf5",
        ".he5",
        ".h4",
        ".tif",
        ".tiff",
        ".gtiff",
        ".grib",
        ".grb",
        ".grib1",
        ".grib2",
        ".grb2",
        ".dmrpp",
        ".bufr",
        ".zarr",
    ]
)
"""a file of such a name is in the census even if nothing can open it"""
SIDECARS = frozenset(
    [
        ".md",
        ".txt",
        ".json",
        ".yaml",
        ".yml",
        ".toml",
        ".csv",
        ".tsv",
        ".xml",
        ".html",
        ".cdl",
        ".py",
        ".sh",
        ".idx",
        ".log",
        ".sha256",
        ".md5",
        ".license",
    ]
)
"""a file of such a name that no scanner knows is not shown to the oracles"""

NO_VARIABLES = frozenset(("Dimension", "Attribute", "Enumeration", "Dim", "Map", "chunks"))
"""elements of a DMR++ that have a name and are no arrays"""

ATTRIBUTES = (".zattrs", ".zmetadata")
"""of a Zarr store, whose data are the files of its chunks"""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to examine."""

    path: Path
    shown: str
    """its path below the folder of the census"""
    format: str | None
    """by content; None where no scanner knows it"""
    data: Path
    """the file that holds the bytes: another one for a DMR++ sidecar and a set of references"""
    target: str | None = None
    """what a set of references calls that file"""

    @property
    def asked(self) -> str:
        """What the oracles open."""
        if self.target is None:
            return str(self.data)
        return f"{self.path}\0{self.target}\0{self.data}"


def jobs(folder: Path) -> Iterator[Job]:
    """Every file that may be data, in the order of the paths."""
    for path in sorted(walk(folder)):
        if path.name == ".zmetadata" and b'"record_size"' in path.read_bytes():
            yield from referred(path.parent, str(path.parent.relative_to(folder)))
            continue
        if path.name in stores.METADATA or path.name in ATTRIBUTES:
            continue
        format = known(path) or ("zarr" if stores.place(str(path)) else None)
        if format is None and path.suffix.lower() in SIDECARS:
            continue
        shown = str(path.relative_to(folder))
        if format == "references":
            yield from referred(path, shown)
            continue
        yield Job(path, shown, format, described(path, format))


def referred(path: Path, shown: str) -> Iterator[Job]:
    """A job for each file here that a set of references refers to; one that is refused where none is here."""
    try:
        found = referring.targets(str(path))
    except Exception as error:  # whatever fsspec makes of a set that is none
        log.info("%s: %s", path, error)
        found = {}
    there = [(name, place) for name, place in found.items() if place is not None]
    if not there:
        yield Job(path, shown, "references", path)
    for name, place in there:
        said = shown if len(there) == 1 else f"{shown} -> {name}"
        yield Job(path, said, "references", place, name)


def walk(folder: Path) -> Iterator[Path]:
    """Regular files at any depth; a link to a folder is not followed."""
    for root, _, names in os.walk(folder):
        yield from (p for name in names if (p := Path(root, name)).is_file())


def known(path: Path) -> str | None:
    """The format of a file by its content; None where no scanner knows it."""
    try:
        return scanners.detect(Source(str(path)))
    except ScanError:
        return None


def described(path: Path, format: str | None) -> Path:
    """The data file beside a DMR++ sidecar, if it is there; else the file itself."""
    if format != "dmrpp":
        return path
    beside = [path.with_suffix("")] if path.suffix == ".dmrpp" else []
    return next((p for p in beside if p.is_file()), path)


def described_arrays(sidecar: Path) -> list[str]:
    """Paths of the variables of a DMR++ sidecar; none of one that is no XML."""
    try:
        root = ET.fromstring(sidecar.read_bytes())
    except ET.ParseError:
        return []
    return list(_variables(root, ""))


def _variables(node: ET.Element, path: str) -> Iterator[str]:
    for child in node:
        kind, name = child.tag.rpartition("}")[2], child.get("name", "")
        if kind == "Group":
            yield from _variables(child, f"{path}{name}/")
        elif kind not in NO_VARIABLES and name:
            yield f"{path}{name}"
