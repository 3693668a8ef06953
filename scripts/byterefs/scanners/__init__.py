"""One file per source format; this folder is the registry.

A scanner is a module with ``recognises(file)`` and ``scan(source, arrays=, concat=, split=)``. A
module whose name starts with an underscore is a helper of its neighbours, not a scanner.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO, Protocol, cast

from byterefs.errors import ConfigError, ScanError
from byterefs.model import Source, SourceScan

SCAN_VERSION = 6
"""raised when a scanner gives other records for the same bytes: every source is then scanned again"""

NAMES: tuple[str, ...] = tuple(
    sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
)
"""the formats that can be scanned"""

OTHERS = (
    (b"\x0e\x03\x13\x01", "HDF4", "write a DMR++ sidecar beside it and say scan: {format: dmrpp}"),
    (b"\x1f\x8b", "gzip", "unpack it"),
    (b"PK\3\4", "a zip archive", "unpack it"),
    (b"BUFR", "BUFR", "its observations are no arrays"),
    (b"SIMPLE  =", "FITS", "convert it to netCDF"),
    (b"<!DOCTYPE", "a web page", "fetch the file again"),
    (b"<html", "a web page", "fetch the file again"),
)
"""(first bytes, format, way out) of what no scanner reads"""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Scanner(Protocol):
    """What a module in this folder offers."""

    def recognises(self, file: BinaryIO) -> bool:
        """Whether the magic bytes of a file, at its start, are this format's; OSError if it cannot be read."""

    def scan(
        self, source: Source, *, arrays: Sequence[str], concat: str | None, split: bool
    ) -> SourceScan:
        """The arrays of one source; see :func:`byterefs.scanners.scan`."""


def load(name: str) -> Scanner:
    """The scanner of a format in NAMES; ConfigError for any other name."""
    if name not in NAMES:
        raise ConfigError(f"scan.format: {name!r} is none of {', '.join(('auto', *NAMES))}")
    return cast(Scanner, import_module(f"{__name__}.{name}"))


def recognised(source: Source) -> str | None:
    """The format of a source by its content; None if no scanner knows it, ScanError if it cannot be read."""
    # here, for the Snakefile imports this package and no numpy
    from byterefs.scanners._common import opened

    with opened(source.source) as seen:
        for name in NAMES:
            seen.file.seek(0)
            if load(name).recognises(seen.file):
                return name
    return None


def detect(source: Source) -> str:
    """The format of a source by its content; ScanError if it cannot be read or no scanner knows it."""
    from byterefs.scanners._common import opened

    name = recognised(source)
    if name is not None:
        return name
    with opened(source.source) as seen:
        size = seen.size
        head = seen.read(0, min(size, 16))
    for first, format, way_out in OTHERS:
        if head.startswith(first):
            raise ScanError(
                f"{source.source}: it is {format}, which no scanner reads ({', '.join(NAMES)} are known); "
                f"{way_out}, leave it out with source.pattern or set scan: {{on_error: skip}}"
            )
    what = f"{size} bytes of no known format" if size else "an empty file"
    raise ScanError(
        f"{source.source}: {what} ({', '.join(NAMES)} are known); leave it out with source.pattern "
        "or set scan: {on_error: skip}"
    )


def refuse_name(source: Source) -> None:
    """Raise ScanError for a name that forms cannot say: bytes that are no text, or control characters."""
    shown = source.source.encode(errors="backslashreplace").decode()
    what = "is not UTF-8" if shown != source.source else "has a control character in it"
    if shown != source.source or CONTROL.search(shown):
        raise ScanError(f"{shown!r}: this name {what}, which no form can publish; rename the file")


def scan(
    source: Source,
    *,
    format: str = "auto",
    arrays: Sequence[str] = (),
    concat: str | None = None,
    split: bool = True,
    multiple: int = 1,
    file_name: Mapping[str, Any] | None = None,
    references: Mapping[str, Any] | None = None,
) -> SourceScan:
    """Every wanted array of one source: metadata, where its chunks lie, and small values.

    ``arrays`` are the wanted arrays by path (``sst``, ``g/sst``); none means all. A wanted array
    that the source lacks is not in the result. With them come, by value, the arrays that describe
    them: scalars, rank 1, and what their CF attributes name. ``concat`` is the dimension (or its
    coordinate) along which sources follow one another; uncompressed arrays that start with it are
    keyed by single steps of it if ``split``. A chunk is ``multiple`` of those, or of native chunks, where
    that is a run of bytes. ``file_name`` is that section of ``scan``: what only the
    source's name says, the array's name or the step of ``concat``, which then is every data array's first
    axis. ``references`` is that section of ``scan``: a set of references that somebody else wrote, whose
    rows are taken where they can be proven. The returned ``source`` has size and mtime as seen in the same open.

    Raises ScanError, naming source, array, rule and way out, for a source that cannot be read, has
    none of the wanted arrays, or has one that cannot be referenced without being wrong.
    """
    refuse_name(source)
    if references:
        # here, for the Snakefile imports this package and no numpy
        from byterefs.scanners import _imported

        own = partial(_by_itself, source, format, arrays, concat, split)
        return _imported.scan(source, references, own, arrays=tuple(arrays), concat=concat)
    name = detect(source) if format == "auto" else format
    scanner = load(name)
    # here, for the Snakefile imports this package and no codecs
    from byterefs.scanners import _file_name, _joined

    if not file_name:
        found = scanner.scan(source, arrays=tuple(arrays), concat=concat, split=split)
        return _joined.joined(found, multiple, arrays)

    said = _file_name.groups(source, file_name)
    if "array" in file_name:
        arrays = _file_name.wanted(source, said[file_name["array"]], arrays)
    found = scanner.scan(source, arrays=tuple(arrays), concat=concat, split=split)
    found = _joined.joined(found, multiple, arrays)
    if concat is None or "coordinate" not in file_name:
        return found
    rule = file_name["coordinate"]
    return _file_name.lifted(found, _file_name.coordinate(source, concat, said[rule["from"]], rule))


def _by_itself(
    source: Source, format: str, arrays: Sequence[str], concat: str | None, split: bool
) -> SourceScan | None:
    """The scan of a source by the scanner of its format; None where no scanner knows it, or it has other names."""
    from byterefs.scanners._common import NoneWantedError

    name = recognised(source) if format == "auto" else format
    if name is None:
        return None
    try:
        return load(name).scan(source, arrays=tuple(arrays), concat=concat, split=split)
    except NoneWantedError:
        return None
