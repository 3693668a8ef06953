"""Writers of tiny GRIB messages by ecCodes, whose product keys and values are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from byterefs import grib

LATLON = {
    "Ni": 6,
    "Nj": 4,
    "latitudeOfFirstGridPointInDegrees": 30.0,
    "latitudeOfLastGridPointInDegrees": 0.0,
    "longitudeOfFirstGridPointInDegrees": 100.0,
    "longitudeOfLastGridPointInDegrees": 150.0,
    "iDirectionIncrementInDegrees": 10.0,
    "jDirectionIncrementInDegrees": 10.0,
}
"""a grid of 4 rows from 30 to 0 degrees north and 6 columns from 100 to 150 degrees east"""
SHAPE = (4, 6)
MISSING = 9999.0


def message(
    values: np.ndarray, keys: Mapping[str, Any] | None = None, sample: str = "regular_ll_pl_grib2"
) -> bytes:
    """One message; a NaN is a missing value. ``packingType`` among the keys is set last, for it repacks."""
    ec = grib.eccodes()
    handle = ec.codes_grib_new_from_samples(sample)
    try:
        given = {**(LATLON if sample.startswith("regular_ll") else {}), **(keys or {})}
        packing, precision = given.pop("packingType", None), given.pop("precision", None)
        for key, value in given.items():
            ec.codes_set(handle, key, value)
        flat = np.asarray(values, "f8").ravel()
        if np.isnan(flat).any():
            ec.codes_set(handle, "bitmapPresent", 1)
            ec.codes_set(handle, "missingValue", MISSING)
            flat = np.where(np.isnan(flat), MISSING, flat)
        if "bitsPerValue" not in given:
            ec.codes_set(handle, "bitsPerValue", 16)
        ec.codes_set_values(handle, flat)
        if packing:
            ec.codes_set(handle, "packingType", packing)
        if precision:
            ec.codes_set(handle, "precision", precision)
            ec.codes_set_values(handle, flat)
        return bytes(ec.codes_get_message(handle))
    finally:
        ec.codes_release(handle)


def truth(message: bytes) -> np.ndarray:
    """The values of a message as ecCodes gives them, in float32; missing is NaN."""
    ec = grib.eccodes()
    handle = ec.codes_new_from_message(message)
    ec.codes_set(handle, "missingValue", -1e30)
    found = np.asarray(ec.codes_get_values(handle))
    ec.codes_release(handle)
    return np.where(found == -1e30, np.nan, found).astype("<f4")


def joined(*messages: bytes) -> bytes:
    """Messages of edition 2 as one message of several fields: sections 4 to 7 of each, one after another."""
    parts = [_sections(m) for m in messages]
    body = b"".join(parts[0][n] for n in (1, 3))
    body += b"".join(part[n] for part in parts for n in (4, 5, 6, 7))
    return messages[0][:8] + (16 + len(body) + 4).to_bytes(8) + body + b"7777"


def _sections(message: bytes) -> dict[int, bytes]:
    at, found = 16, {}
    while message[at : at + 4] != b"7777":
        size = int.from_bytes(message[at : at + 4])
        found[message[at + 4]] = message[at : at + size]
        at += size
    return found


def ramp(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Values in steps of 1/4, which 16 bits hold exactly: those of one seed only."""
    return 200 + seed * 7 + np.arange(np.prod(shape)).reshape(shape) / 4
