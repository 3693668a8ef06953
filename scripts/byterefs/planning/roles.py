"""What an array is to its dataset: data or coordinate, whose bounds, by value or by reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from byterefs.errors import PlanError
from byterefs.planning.physical import Physical
from byterefs.units import Units

INLINE_BYTES = 16 * 2**20
"""a coordinate along the concat axis is inline up to this size, referenced beyond"""
NAMING = ("coordinates", "bounds", "climatology", "grid_mapping")
"""CF attributes whose words name other arrays; those are coordinates, not data"""


@dataclass(frozen=True)
class Roles:
    """Which arrays are coordinates, and which bounds count from which time coordinate."""

    coords: frozenset[str]
    bounds_of: Mapping[str, str]
    needed: frozenset[str]
    """wanted arrays and what they lie on; the rest (scalars that came along) may be left out"""

    @classmethod
    def of(cls, physical: Physical, chosen: Sequence[str], config: Mapping[str, Any]) -> Roles:
        """Read the CF attributes of every array of the chosen sources."""
        used = {h.meta for s in chosen for h in physical.have[s].values()}
        metas = [physical.metas[m] for m in sorted(used)]
        names = {m.array for m in metas}
        wanted = set((config.get("scan") or {}).get("arrays") or ())
        missing = sorted(wanted - names)
        if missing:
            raise PlanError(
                f"dataset {config['dataset']!r}: no planned source has {', '.join(missing)} of scan.arrays; there are {', '.join(sorted(names))}"
            )
        scalars = {m.array for m in metas if not m.dims}
        coords = {m.array for m in metas if m.dims == (m.array.rsplit("/", 1)[-1],)}
        bounds: dict[str, str] = {}
        mappings: set[str] = set()
        for m in metas:
            for attr in NAMING:
                words = str(m.attrs.get(attr, "")).replace(":", " ").split()
                folder = m.array.rsplit("/", 1)[0] + "/" if "/" in m.array else ""
                found = {n for w in words for n in (folder + w, w.lstrip("/")) if n in names}
                coords |= found
                if attr in ("bounds", "climatology"):
                    bounds |= dict.fromkeys(found, m.array)
                elif attr == "grid_mapping":
                    mappings |= found
        # a scalar such as the time of a forecast is of one source; what an array lies on is of all
        loose = scalars - mappings
        loose |= {b for b, of in bounds.items() if of in loose}
        needed = (wanted | (coords - loose)) if wanted else names
        return cls(frozenset((coords | scalars) - wanted), bounds, frozenset(needed))

    def units(self, physical: Physical, source: str, array: str) -> Units | None:
        """Time units of an array of a source; bounds without their own count as their coordinate does."""
        parent = self.bounds_of.get(array)
        inherited = None
        if parent is not None and parent in physical.have[source]:
            inherited = physical.units(physical.have[source][parent].meta)
        return physical.units(physical.have[source][array].meta, inherited)


def by_value(
    physical: Physical,
    sources: Sequence[str],
    array: str,
    roles: Roles,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> bool:
    """Whether the plan holds an array's values: they are kept by every scan, and wanted or all there is.

    Wanted are one-dimensional arrays and coordinates, if they are small at the ``sizes`` that the plan
    gives their dimensions; all there is are values without byte ranges, such as strings of any length.
    """
    having = [s for s in sources if array in physical.have[s]]
    meta = physical.meta(having[0], array)
    elements = prod(sizes.get(d, n) for d, n in zip(meta.dims, meta.shape, strict=True))
    small = elements * np.dtype(meta.dtype).itemsize <= INLINE_BYTES
    ranged = any(physical.have[s][array].chunks is not None for s in having)
    wanted = len(meta.dims) <= 1 or (small and (array in roles.coords or not ranged))
    return wanted and all(physical.have[s][array].kept for s in having)
