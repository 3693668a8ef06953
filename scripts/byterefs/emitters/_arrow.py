"""Columns of references that the Parquet forms share; they have their types also where all is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def locations(
    source: NDArray[np.int32], here: NDArray[np.bool_], paths: Sequence[str]
) -> pa.DictionaryArray:
    """The path of each row's source, null where ``here`` is false; only paths in use are in it."""
    used, index = np.unique(source[here], return_inverse=True)
    codes = np.zeros(len(here), np.int32)
    codes[here] = index
    names = pa.array([paths[i] for i in used.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=~here), names)


def binary(data: Mapping[int, bytes], rows: int) -> pa.Array:
    """Inline chunks by row number; never of null type, which stock readers cannot take (s3.md, 2.4)."""
    if not data:
        return pa.nulls(rows, pa.binary())
    column: list[bytes | None] = [None] * rows
    for i, chunk in data.items():
        column[i] = chunk
    return pa.array(column, pa.binary())
