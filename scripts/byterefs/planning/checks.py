"""What an array may not be once it is whole: gaps that read as values, names that a table cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from byterefs.errors import PlanError
from byterefs.literals import fill_value, same_number
from byterefs.model import Array, ArrayMeta, Key, Placement
from byterefs.planning import consistency

RESERVED = ("meta", "sources", "arrays", "placements", "remap")


def check_gaps(
    name: str,
    first: ArrayMeta,
    placements: Sequence[Placement],
    shape: Key,
    attrs: Mapping[str, Any],
) -> None:
    """Refuse a stretch without source that no attribute declares missing: it would read as a value.

    Readers take fill for it (mdim-refs/0.2); only ``_FillValue`` or ``missing_value`` makes that a gap.
    """
    if sum(prod(p.count) for p in placements) >= prod(shape):
        return
    fill = fill_value(first.fill, first.dtype)
    stored = np.dtype(first.dtype).type(0) if fill is None else fill
    declared = [
        attrs.get("_FillValue"),
        *np.ravel(np.asarray(attrs.get("missing_value"), object)).tolist(),
    ]
    if not any(same_number(value, stored) for value in declared):
        raise PlanError(
            f"{placements[0].source}: array {name!r} would have places without a source, which read as "
            f"{stored}, and its _FillValue ({consistency.shown(attrs.get('_FillValue'))}) does not say that "
            f"this is missing; use plan.axis: packed, or add the sources that have it"
        )


def uncovered(meta: ArrayMeta) -> Any:
    """What an inline array holds where no source lies: its fill; NaN where CF readers do not know the fill."""
    if np.dtype(meta.dtype).kind == "f" and "_FillValue" not in meta.attrs:
        return np.nan
    fill = fill_value(meta.fill, meta.dtype)
    return np.zeros((), meta.dtype)[()] if fill is None else fill


def refuse_names(arrays: Mapping[str, Array], eras: Sequence[str] = ()) -> None:
    """Refuse array names that a table or a file system cannot tell apart (design section 4)."""
    taken = {a.own.split("/")[0]: a.own for a in arrays.values()}
    for era in eras:
        if era in taken:
            raise PlanError(
                f"{era!r} is an array and an era, or a group of {taken[era]!r}; give the era another name in plan.eras"
            )
    lower: dict[str, str] = {}
    for name in arrays:
        if name.lower() in lower:
            raise PlanError(
                f"arrays {lower[name.lower()]!r} and {name!r} differ only in case, which SQLite cannot tell apart; choose with scan.arrays",
                array=name,
            )
        lower[name.lower()] = name
        if name.lower() in RESERVED or name.lower().startswith(("refs_", "byterefs_", "sqlite_")):
            raise PlanError(
                f"array {name!r} has a name that mdim-refs/0.2 reserves; leave it out with scan.arrays",
                array=name,
            )
