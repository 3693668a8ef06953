"""GRIB messages: where they lie in a file, the fields that one of them holds, the values of a field.

Sections are those of WMO manual 306, volume I.2. A message holds one field in edition 1; in edition 2
sections 2 to 7, 3 to 7 or 4 to 7 may come again, once for each further field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byterefs.errors import ByteRefsError

Read = Callable[[int, int], bytes]
"""``read(offset, size)``: that many bytes of a file; ByteRefsError if it has fewer"""

MAGIC, END = b"GRIB", b"7777"
SEARCHED = 1 << 16
"""bytes that are searched at a time for the next message"""
HEAD = 1 << 13
"""bytes that are read at a time of a message's head"""
LONG = 0x800000
"""in an edition 1 length: it counts units of 120 bytes, if the data section says less than 120"""
GRIBBERISH, ECCODES = "gribberish", "grib:eccodes"
"""codec ids, by who decodes: the Zarr codec of that name, or ecCodes, which no Zarr codec offers"""
PROVEN = {
    1: ("grid_simple",),
    2: (
        *("grid_simple", "grid_complex", "grid_complex_spatial_differencing"),
        *("grid_ccsds", "grid_jpeg", "grid_png"),
    ),
}
"""packings, by edition, whose values gribberish 1.9 gives as ecCodes 2.50 does"""
CCSDS = (0, *range(5, 25))
"""bits of a number in that packing for which this was compared; 0 is a constant field"""
LATLON = ("regular_ll", "regular_gg")
"""grids of edition 1 that gribberish gives a shape; it takes a reduced one for 65535 columns"""
RECTANGULAR = (0, 1, 3, 4, 5, 10, 14)
"""representation types of edition 1 with rows and columns: geographic, Mercator, Lambert, polar, rotated"""
GAUSSIAN = (4, 14)
"""those whose rows are at Gaussian latitudes"""
SECOND_ORDER = 64
"""a flag of a data section of edition 1, whose further keys need what a head lacks"""
MISSING = -3.4028234663852886e38
"""what ecCodes is told to give for a missing value: no field holds it"""


class Message(NamedTuple):
    """One message of a file, in bytes from the start of the file."""

    offset: int
    size: int
    edition: int


def messages(read: Read, end: int) -> Iterator[Message]:
    """The messages of a file of ``end`` bytes; ByteRefsError for one that is cut off or damaged.

    What lies between messages, such as the headings of a bulletin, is passed over.
    """
    at = 0
    while (start := find(read, at, end)) is not None:
        size, edition = length(read, start, end)
        if start + size > end:
            raise ByteRefsError(
                f"the message at byte {start} ends at byte {start + size} of a file of {end}: the file is truncated"
            )
        if read(start + size - 4, 4) != END:
            raise ByteRefsError(
                f"the message at byte {start} of {size} bytes does not end in 7777: the file is damaged"
            )
        yield Message(start, size, edition)
        at = start + size


def find(read: Read, at: int, end: int) -> int | None:
    """Where the next message starts; None if there is none."""
    while at < end:
        block = read(at, min(SEARCHED, end - at))
        found = block.find(MAGIC)
        if found >= 0:
            return at + found
        if at + len(block) == end:
            return None
        at += len(block) - len(MAGIC) + 1
    return None


def length(read: Read, start: int, end: int) -> tuple[int, int]:
    """Bytes of the message that starts at ``start``, and its edition."""
    head = read(start, min(16, end - start))
    edition = head[7] if len(head) == 16 else 0
    if edition == 2:
        return int.from_bytes(head[8:16]), edition
    if edition != 1:
        raise ByteRefsError(f"the message at byte {start} is of edition {edition}, not 1 or 2")
    size = int.from_bytes(head[4:7])
    if size & LONG:
        data = sections1(read, start)[-1]
        small = int.from_bytes(read(data, 3))
        if small < 120:
            size = (size & ~LONG) * 120 - small + 4
    return size, edition


def sections1(read: Read, start: int) -> list[int]:
    """Where the sections of an edition 1 message start: product, grid and bitmap if any, data."""
    at = start + 8
    flags, found = read(at + 7, 1)[0], [at]
    for there in (True, flags & 128, flags & 64):
        if there:
            at += int.from_bytes(read(at, 3))
            found.append(at)
    return found


def fields(read: Read, message: Message) -> list[bytes]:
    """The fields of a message, each as a message of its own without its data and without its bitmap's bits.

    ecCodes gives the keys of such a head as it gives those of the whole.
    """
    near = buffered(read, message.offset + message.size)
    return heads1(near, message) if message.edition == 1 else split2(near, message, cut)


def field(message: bytes, number: int) -> bytes:
    """A field of a whole message of edition 2, as a message of its own."""

    def read(offset: int, size: int) -> bytes:
        return message[offset : offset + size]

    found = split2(read, Message(0, len(message), 2), lambda _, size: size)
    if number >= len(found):
        raise ByteRefsError(f"a message of {len(found)} fields has no field {number}")
    return found[number]


def buffered(read: Read, end: int) -> Read:
    """``read`` by blocks of HEAD bytes, none of which passes ``end``."""
    held, first = b"", 0

    def near(offset: int, size: int) -> bytes:
        nonlocal held, first
        if not first <= offset <= offset + size <= first + len(held):
            first, held = offset, read(offset, max(size, min(HEAD, end - offset)))
        return held[offset - first : offset - first + size]

    return near


def heads1(read: Read, message: Message) -> list[bytes]:
    """The one field of an edition 1 message without data: 32 bytes of that section have its keys.

    Only of a rectangular grid: ecCodes counts the points of another one by the length of its data.
    """
    starts = sections1(read, message.offset)
    data = starts[-1]
    if not rectangular(read, starts):
        return [read(message.offset, message.size)]
    parts = [read(a, b - a) for a, b in pairwise(starts)]
    head = read(data, min(32, message.offset + message.size - 4 - data))
    if head[3] & SECOND_ORDER:
        return [read(message.offset, message.size)]
    if read(starts[1] + 5, 1)[0] in GAUSSIAN:
        # ecCodes 2.50 takes the grid for a part where there are fewer values, unless they are constant
        head = head[:10] + b"\0" + head[11:]
    body = b"".join([*parts, len(head).to_bytes(3), head[3:], END])
    return [MAGIC + (8 + len(body)).to_bytes(3) + b"\1" + body]


def rectangular(read: Read, starts: list[int]) -> bool:
    """Whether an edition 1 message says how many columns its grid has, in a section 2 of its own."""
    product, grid = starts[0], starts[1]
    if not read(product + 7, 1)[0] & 128:
        return False
    said = read(grid, 10)
    return said[5] in RECTANGULAR and said[6:8] != b"\xff\xff" and said[8:10] != b"\xff\xff"


def cut(number: int, size: int) -> int:
    """How many bytes of a section of edition 2 its keys need."""
    return {6: min(size, 6), 7: 5}.get(number, size)


def split2(read: Read, message: Message, kept: Callable[[int, int], int]) -> list[bytes]:
    """The fields of an edition 2 message as messages of their own, ``kept`` bytes of each section."""
    at, stop = message.offset + 16, message.offset + message.size - 4
    head, current, found = read(message.offset, 8), dict[int, bytes](), []
    while at < stop:
        said = read(at, 5)
        size, number = int.from_bytes(said[:4]), said[4]
        if size < 5 or at + size > stop or not 1 <= number <= 7:
            raise ByteRefsError(
                f"section {number} of {size} bytes at byte {at} does not fit in the message at byte "
                f"{message.offset} of {message.size} bytes: the file is damaged"
            )
        n = kept(number, size)
        part = n.to_bytes(4) + read(at + 4, n - 4)
        current[number] = bitmap(part, current) if number == 6 else part
        if number == 7:
            body = b"".join(current[k] for k in sorted(current)) + END
            found.append(head + (16 + len(body)).to_bytes(8) + body)
        at += size
    return found


def bitmap(part: bytes, current: Mapping[int, bytes]) -> bytes:
    """A bitmap section; one that says "the one before" (254) is the one before."""
    return current.get(6, part) if part[5] == 254 else part


# --- values ----------------------------------------------------------------------------------------


def decoder(edition: int, packing: str, grid: str, *, masked: bool, bits: int = 16) -> str:
    """The codec id of a field: GRIBBERISH where it is proven to give what ecCodes does.

    In edition 1 gribberish loses the ``masked`` points of a constant field. Of CCSDS it gives other
    values where a number has 2 to 4 ``bits`` or more than 24, and none where it has one.
    """
    proven = packing in PROVEN[edition] and (edition == 2 or (grid in LATLON and not masked))
    proven = proven and (packing != "grid_ccsds" or bits in CCSDS)
    return GRIBBERISH if proven else ECCODES


def decode(config: Mapping[str, Any], message: bytes) -> NDArray[Any]:
    """The values of a field in the order of the message, one axis, in the dtype of the config; missing is NaN.

    Raises ByteRefsError for bytes that are no such message.
    """
    if message[:4] != MAGIC or message[-4:] != END:
        raise ByteRefsError(
            f"{len(message)} bytes are no GRIB message: the byte range is wrong or the source has changed"
        )
    values = by_gribberish(message) if config["id"] == GRIBBERISH else by_eccodes(config, message)
    return values.astype(config["dtype"], copy=False)


@cache
def eccodes() -> Any:
    """The library ecCodes, loaded after GDAL's where there is one."""
    if find_spec("osgeo"):
        # loaded after eccodeslib 2.50, gdal-wheel 3.13.3 kills the process as it ends
        import_module("osgeo.gdal")
    return import_module("eccodes")


def by_gribberish(message: bytes) -> NDArray[Any]:
    """The values of the first field of a message."""
    import gribberish

    try:
        return np.asarray(gribberish.parse_grib_array(message, 0)).ravel()
    except BaseException as error:  # a panic of its Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ByteRefsError(
            f"gribberish cannot decode a message of {len(message)} bytes ({' '.join(str(error).split())})"
        ) from error


def by_eccodes(config: Mapping[str, Any], message: bytes) -> NDArray[Any]:
    """The values of field ``config["field"]`` of a message."""
    ec = eccodes()
    if config.get("field"):
        message = field(message, config["field"])
    try:
        handle = ec.codes_new_from_message(message)
        try:
            ec.codes_set(handle, "missingValue", MISSING)
            values = np.asarray(ec.codes_get_values(handle))
        finally:
            ec.codes_release(handle)
    except ec.CodesInternalError as error:
        raise ByteRefsError(
            f"ecCodes cannot decode a message of {len(message)} bytes ({error})"
        ) from error
    return np.where(values == MISSING, np.nan, values)
