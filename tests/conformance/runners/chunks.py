"""Chunks of a table by the spec alone: where they lie, how they decode; numpy and zlib, nothing of byterefs."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

Row = tuple[Any, Any, Any, Any]
"""path, offset, size, data"""


def assembled(array: Mapping[str, Any], rows: Mapping[tuple[int, ...], Row]) -> np.ndarray:
    """The whole array; chunks without a row read as fill."""
    fill = 0 if array["fill"] is None else float(array["fill"])
    out = np.full(array["shape"], fill if np.isnan(fill) else type(fill)(fill), array["dtype"])
    grid = [range(-(-n // c)) for n, c in zip(array["shape"], array["chunks"], strict=True)]
    for key in itertools.product(*grid):
        if key not in rows:
            continue
        chunk = decoded(raw(*rows[key]), array["codec"], array["dtype"], array["chunks"])
        at = [
            slice(k * c, min((k + 1) * c, n))
            for k, c, n in zip(key, array["chunks"], array["shape"], strict=True)
        ]
        out[tuple(at)] = chunk[tuple(slice(0, s.stop - s.start) for s in at)]
    return out


def raw(path: str | None, offset: int | None, size: int, data: bytes | None) -> bytes:
    """The bytes of a chunk: in the row, or a range of a file."""
    if data is not None:
        return bytes(data)
    with open(str(path).removeprefix("file://"), "rb") as f:
        f.seek(int(offset or 0))
        found = f.read(size)
    if len(found) != size:
        raise ValueError(f"{len(found)} of {size} bytes")
    return found


def decoded(data: bytes, codec: Mapping[str, Any], dtype: str, chunks: list[int]) -> np.ndarray:
    """A chunk: the codec undone from its last step to its first."""
    steps = [*(codec["filters"] or []), *([codec["compressor"]] if codec["compressor"] else [])]
    for step in reversed(steps):
        if step["id"] == "zlib":
            data = zlib.decompress(data)
        elif step["id"] == "shuffle":
            data = np.frombuffer(data, "u1").reshape(step["elementsize"], -1).T.tobytes()
        elif step["id"] == "fletcher32":
            data = data[:-4]
        elif step["id"] == "imagecodecs_delta":
            steps_of = np.frombuffer(data, step["dtype"]).reshape(step["shape"])
            data = np.add.accumulate(steps_of, axis=step["axis"], dtype=step["dtype"]).tobytes()
        else:
            raise ValueError(f"no codec {step['id']}")
    return np.frombuffer(data, dtype).reshape(chunks)
