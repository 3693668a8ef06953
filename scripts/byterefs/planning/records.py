"""An array as a row of the table ``arrays``, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from byterefs.files import canonical
from byterefs.model import Array, Placement


def array_row(a: Array) -> tuple[Any, ...]:
    """A row of the working store's ``arrays``; a published store has the first fourteen columns."""
    return (
        a.array,
        a.kind,
        a.storage,
        canonical(a.dims),
        canonical(a.shape),
        canonical(a.chunks),
        a.dtype,
        a.fill,
        canonical(a.codec),
        canonical(a.attrs),
        None if a.affine is None else canonical(a.affine),
        None if a.storage == "affine" else a.values,
        canonical(a.attr_dtypes),
        a.grid_mapping,
        a.info,
        a.refused,
    )


def array_of(
    row: tuple[Any, ...], placements: Sequence[Placement], eras: Sequence[str] = ()
) -> Array:
    """An Array from a row of the working store's ``arrays``; affine values are computed."""
    (
        name,
        kind,
        storage,
        dims,
        shape,
        chunks,
        dtype,
        fill,
        codec,
        attrs,
        spacing,
        values,
        dtypes,
        mapping,
        info,
        refused,
    ) = row
    shape, spacing = tuple(json.loads(shape)), None if spacing is None else json.loads(spacing)
    if spacing is not None:
        values = (spacing["start"] + spacing["step"] * np.arange(shape[0])).astype(dtype).tobytes()
    return Array(
        array=name,
        kind=kind,
        storage=storage,
        dims=tuple(json.loads(dims)),
        shape=shape,
        chunks=tuple(json.loads(chunks)),
        dtype=dtype,
        fill=fill,
        codec=json.loads(codec),
        info=info,
        attrs=json.loads(attrs),
        attr_dtypes=json.loads(dtypes),
        grid_mapping=mapping,
        affine=spacing,
        values=values,
        placements=placements,
        refused=refused,
        era=next((e for e in eras if name.startswith(f"{e}/")), ""),
    )
