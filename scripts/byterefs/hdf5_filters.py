"""Decoders of HDF5 filters that numcodecs has no codec for, from their ``cd_values``.

The layouts are those of H5Zscaleoffset.c and H5Znbit.c (HDF5), of h5py's lzf_filter.c and of
bitshuffle's bshuf_h5filter.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[int]
HEADER = 21
"""bytes before the packed values of a chunk that scaleoffset wrote"""
LZ4, ZSTD = 2, 3
"""compressions that bitshuffle applies to its blocks"""


def lzf(cd: Values, data: bytes) -> bytes:
    """What LZF made of a chunk, whose length is the filter's third value."""
    import imagecodecs

    return bytes(imagecodecs.lzf_decode(data, header=False, out=cd[2]))


def bitshuffle(cd: Values, data: bytes) -> bytes:
    """Elements whose bits were transposed in blocks, and the blocks compressed."""
    import imagecodecs

    itemsize, block, kind = cd[2], cd[3], cd[4] if len(cd) > 4 else 0
    if kind == 0:
        return bytes(imagecodecs.bitshuffle_decode(data, itemsize=itemsize, blocksize=block))
    total, step = struct.unpack(">QI", data[:12])
    at, done, out = 12, 0, []
    # blocks hold whole groups of eight elements; what is left over is stored as it is
    whole = total // (8 * itemsize) * (8 * itemsize)
    while done < whole:
        size = min(step, whole - done)
        (length,) = struct.unpack(">I", data[at : at + 4])
        packed = data[at + 4 : at + 4 + length]
        raw = (
            imagecodecs.lz4_decode(packed, header=False, out=size)
            if kind == LZ4
            else imagecodecs.zstd_decode(packed, out=size)
        )
        out.append(
            imagecodecs.bitshuffle_decode(raw, itemsize=itemsize, blocksize=size // itemsize)
        )
        at, done = at + 4 + length, done + size
    return b"".join(map(bytes, out)) + data[at : at + total - whole]


def nbit(cd: Values, data: bytes) -> bytes:
    """A chunk as it is: types whose every bit counts are the only ones that a scan records."""
    if not cd[1]:
        raise ValueError("its numbers have fewer bits than their bytes")
    return data


def scaleoffset(cd: Values, data: bytes) -> bytes:
    """Numbers that were stored as differences from the least, with as few bits as they need."""
    kind, scale, count, number, size, signed, order, filled = cd[:8]
    native = np.dtype(f"<{'f' if number == 1 else 'iu'[1 - signed]}{size}")
    bits = struct.unpack("<I", data[:4])[0]
    if bits == 8 * size:
        found = np.frombuffer(data, native, count, HEADER)
    else:
        codes = unpacked(data[HEADER:], bits, count)
        least = data[5:13]
        restore = restored_float if number == 1 else restored_integer
        found = restore(codes, least, native, scale if kind == 0 else 0)
        if filled:
            fill = np.frombuffer(struct.pack("<12I", *cd[8:20]), native, 1)[0]
            found = np.where(codes == np.uint64((1 << bits) - 1), fill, found)
    return found.astype(native.newbyteorder(">" if order else "<")).tobytes()


def restored_integer(
    codes: NDArray[np.uint64], least: bytes, native: np.dtype[Any], _: int
) -> NDArray[Any]:
    """The least value plus the codes; it wraps around as C does."""
    found: NDArray[Any] = codes + np.frombuffer(least, "<u8")[0]
    return found.astype(f"<u{native.itemsize}").view(native)


def restored_float(
    codes: NDArray[np.uint64], least: bytes, native: np.dtype[Any], scale: int
) -> NDArray[Any]:
    """Codes over ten to the number of digits, plus the least value, in the precision of the type."""
    first = np.frombuffer(least, native, 1)[0]
    found: NDArray[Any] = codes.astype(native) / native.type(10.0**scale) + first
    return found.astype(native)


def unpacked(data: bytes, bits: int, count: int) -> NDArray[np.uint64]:
    """``count`` numbers of so many bits each, the highest bit first."""
    out = np.zeros(count, np.uint64)
    if not bits:
        return out
    stream = np.unpackbits(np.frombuffer(data, np.uint8), count=bits * count).reshape(count, bits)
    for column in stream.T:
        out = out << np.uint64(1) | column
    return out


DECODERS: dict[str, Callable[[Values, bytes], bytes]] = {
    "hdf5:lzf": lzf,
    "hdf5:bitshuffle": bitshuffle,
    "hdf5:nbit": nbit,
    "hdf5:scaleoffset": scaleoffset,
}
"""codec id -> decoder of ``cd_values`` and stored bytes"""
