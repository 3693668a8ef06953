"""Byte ranges as GDAL's ``GetRawBlockInfo`` gives them, for formats of GDAL's that no other scanner reads.

Named in ``scan.format``, never found by itself. GDAL 3.13 tells ranges of netCDF-4 and HDF5 (and what is built
on them, such as BAG and S-102); of HDF4 and of rasters it tells none, and such arrays are refused. Its
words lose the order of filters (research/peers.md, 0.5), so that the codec is the order by which the first
and the last chunk decode to what GDAL itself reads. A call costs a walk over the array's whole index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from byterefs.model import Source, SourceScan


def recognises(file: BinaryIO) -> bool:
    """False: a scanner of the format itself says more, and GDAL is asked only where it is named."""
    return False


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The wanted arrays of one file by GDAL; see :func:`byterefs.scanners.scan`.

    Raises ScanError for a file that GDAL cannot open as arrays, and for an array whose ranges GDAL does not
    tell, or not truthfully.
    """
    # here, for a scan that finds its format by content asks every scanner, and GDAL takes its time to load
    from byterefs.scanners import _block_info

    return _block_info.scan(source, arrays=arrays, concat=concat)
