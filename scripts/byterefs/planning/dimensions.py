"""Where the dimensions of a multidimensional VRT stand: at the root, or in the group whose arrays need their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from byterefs.errors import PlanError
from byterefs.model import Array

Declared = dict[str, dict[str, int]]
"""group (``""`` is the root, else ``g/h``) -> the dimensions declared there -> their length"""


def declared(arrays: Collection[Array]) -> Declared:
    """Every dimension where it has to stand: as far out as all arrays below agree on its length.

    A group redeclares a name that has another length further out, as in netCDF-4. Raises PlanError
    where two arrays of one group disagree.
    """
    out: Declared = {}
    needs = [(folder(a.array), d, n, a.array) for a in arrays for d, n in extents(a)]
    declare(needs, "", {}, out)
    return out


Need = tuple[str, str, int, str]
"""group of an array, dimension, length, array"""


def declare(needs: list[Need], group: str, known: Mapping[str, int], out: Declared) -> None:
    """Declare what the arrays below ``group`` need beside the dimensions ``known`` further out."""
    lengths: dict[str, set[int]] = {}
    here: dict[str, int] = {}
    for where, d, n, array in needs:
        lengths.setdefault(d, set()).add(n)
        if where == group and here.setdefault(d, n) != n:
            raise PlanError(
                f"dimension {d!r} has {here[d]} elements and {n} in array {array!r} of the same group; "
                f"choose arrays with scan.arrays",
                array=array,
            )
    here |= {d: min(found) for d, found in lengths.items() if len(found) == 1}
    own = {d: n for d, n in here.items() if known.get(d) != n}
    if own or not group:
        out[group] = own
    inner = {**known, **own}
    lead = f"{group}/" if group else ""
    for sub in sorted({lead + w.removeprefix(lead).split("/")[0] for w, *_ in needs if w != group}):
        below = [x for x in needs if x[0] == sub or x[0].startswith(f"{sub}/")]
        if any(inner.get(d) != n for _, d, n, _ in below):
            declare(below, sub, inner, out)


def reference(array: Array, dimension: str, where: Declared) -> str:
    """The full name of the dimension that an array has under a short name: ``/time``, ``/g/time``."""
    group = folder(array.array)
    while dimension not in where.get(group, {}):
        group = folder(group)
    return f"/{group}/{dimension}" if group else f"/{dimension}"


def folder(path: str) -> str:
    """The group that a path lies in; the root is ``""``.

    >>> folder("g/h/sst"), folder("sst")
    ('g/h', '')
    """
    return path.rpartition("/")[0]


def extents(a: Array) -> Iterator[tuple[str, int]]:
    """Every dimension of an array in a VRT with its length, characters of text too."""
    yield from zip(a.dims, a.shape, strict=True)
    yield from of_text(a)


def of_text(a: Array) -> list[tuple[str, int]]:
    """The dimension that a string array needs for its characters: none unless it is ``|S2`` or longer."""
    width = np.dtype(a.dtype).itemsize if a.dtype[1] == "S" else 1
    return [(f"string{width}", width)] if width > 1 else []
