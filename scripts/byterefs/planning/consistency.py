"""What sources must agree on to be one array, and where along the archive they stop agreeing.

``gdal mdim mosaic`` 3.13 accepts most of these differences silently (research/peers.md, E.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from byterefs.codecs import decisive
from byterefs.errors import PlanError
from byterefs.files import digest
from byterefs.model import ArrayMeta
from byterefs.planning.physical import Physical
from byterefs.units import Units

PACKING = (
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "flag_values",
    "flag_masks",
    "flag_meanings",
)
MEANING = ("units", "calendar", "positive")
RANGES = ("valid_min", "valid_max", "valid_range")
DECISIVE = (*PACKING, *RANGES, *MEANING)
"""attributes without which stored values mean something else"""

SYSTEMS = ("grid_mapping_name", "crs_wkt", "spatial_ref")
"""text attributes of a grid mapping that say where pixels lie, beside its numbers"""

Signature = dict[str, Any]


def signature(
    meta: ArrayMeta, *, concat: Iterable[str], by_value: bool, units: Units | None
) -> Signature:
    """What must be equal across the sources of an array.

    The length of a ``concat`` dimension may differ. Chunks, codec and fill matter only where bytes
    are referenced; time ``units``, which bounds may inherit, only where values are not converted.
    """
    free = set(concat)
    out: Signature = {
        "dims": list(meta.dims),
        "shape": [None if d in free else n for d, n in zip(meta.dims, meta.shape, strict=True)],
        # strings that are read by value have the width of the longest in their source
        "dtype": "|S" if by_value and meta.dtype[1] == "S" else meta.dtype,
    }
    for name in DECISIVE:
        out[name] = meta.attrs.get(name)
    out |= system(meta)
    if units is not None:
        converted = "times, which are converted" if by_value else None
        out |= {"units": converted or units.units, "calendar": converted or units.calendar}
    if not by_value:
        out |= {"chunks": list(meta.chunks), "codec": decisive(meta.codec), "fill": meta.fill}
    return out


def system(meta: ArrayMeta) -> Signature:
    """What of a grid mapping decides where pixels lie: its numbers, and the texts that name a system."""
    if not any(name in meta.attrs for name in SYSTEMS):
        return {}
    return {
        name: value
        for name, value in sorted(meta.attrs.items())
        if name in SYSTEMS or not isinstance(value, str)
    }


STATIC = "values"
"""what a signature calls the digest of an array that has no concat axis"""


def readable(sig: Signature) -> Signature:
    """What of a signature matters to a reader of values, such as GDAL on a VRT: not how they are stored."""
    dtype = sig["dtype"]
    plain = "=" + dtype[1:] if dtype[0] in "<>" else dtype
    return {k: v for k, v in sig.items() if k not in ("chunks", "codec")} | {"dtype": plain}


def difference(one: Signature, two: Signature) -> str | None:
    """The first key in which two signatures differ; None if none does."""
    return next((k for k in (*one, *two) if one.get(k) != two.get(k)), None)


def runs(order: Sequence[tuple[str, Signature]]) -> list[dict[str, Any]]:
    """Runs of neighbouring sources with one signature: the era boundaries of an array."""
    out: list[dict[str, Any]] = []
    for source, sig in order:
        if out and (out[-1]["signature"] is sig or out[-1]["signature"] == sig):
            out[-1]["last"] = source
            out[-1]["count"] += 1
        else:
            out.append({"signature": sig, "first": source, "last": source, "count": 1})
    return out


def report(
    signatures: Mapping[str, Sequence[tuple[str, Signature]]],
    order: Sequence[str],
    at: Callable[[str], str | None],
) -> dict[str, Any]:
    """Per array the runs of sources with one signature and the signatures by their id.

    A run says where it starts and stops in ``order``, all sources, and by ``at`` where along the axis;
    equal signatures have equal ids.
    """
    position = {source: i for i, source in enumerate(order)}
    arrays = {}
    for array, having in sorted(signatures.items()):
        known: dict[str, Signature] = {}
        found = runs(having)
        for run in found:
            sig = run.pop("signature")
            run["id"] = digest(sig)[:12]
            known[run["id"]] = sig
            run |= {"start": position[run["first"]], "stop": position[run["last"]] + 1}
            run |= {"from": at(run["first"]), "to": at(run["last"])}
        arrays[array] = {"consistent": len(known) <= 1, "runs": found, "signatures": known}
    return {"arrays": arrays}


APART = (
    "per array: say plan.eras: auto, or give these sources a dataset of their own (source.pattern); see "
    "plan/consistency.html for the runs"
)


def check(array: str, order: Sequence[tuple[str, Signature]], way_out: str = APART) -> None:
    """Refuse an array whose sources differ, naming the two sources and both values.

    Values without the concat axis are left to :func:`check_static`, which can say where they differ.
    """
    first_source, first = order[0]
    for source, sig in order:
        if sig == first or difference({**first, STATIC: None}, {**sig, STATIC: None}) is None:
            continue
        what = str(difference(first, sig))
        raise PlanError(
            f"{source}: array {array!r} has {what} {shown(sig.get(what))}, and {first_source} has "
            f"{shown(first.get(what))}; one {what} {way_out}"
        )


def unlike_lengths(
    physical: Physical, array: str, order: Sequence[tuple[str, Signature]], along: str | None
) -> str | None:
    """Why ``refs_<array>`` cannot be where every source is one chunk along ``along``, of a length of its own.

    None where they have one length, and where anything else differs too.
    """
    first_source, first = order[0]
    others = [(s, sig) for s, sig in order if sig is not first and sig != first]
    if not others or "chunks" not in first or along not in first["dims"]:
        return None
    at = first["dims"].index(along)
    if any(lengthless(sig, at) != lengthless(first, at) for _, sig in others):
        return None
    if any((m := physical.meta(s, array)).chunks[at] != m.shape[at] for s, _ in order):
        return None
    source, other = others[0]
    return (
        f"{source}: array {array!r} has chunks {other['chunks']}, and {first_source} has {first['chunks']}: each is "
        f"one chunk along {along!r}, and refs_{array} needs a regular grid (mdim-refs/0.2); the VRT reads across "
        f"them, and plan.eras: auto makes a group of each length"
    )


def lengthless(sig: Signature, axis: int) -> Signature:
    """A signature without the length of its chunks along one axis."""
    return {**sig, "chunks": [*sig["chunks"][:axis], *sig["chunks"][axis + 1 :]]}


def shown(value: Any) -> str:
    """A value as a person reads it in a sentence."""
    return "none" if value is None else str(value)


def check_static(
    physical: Physical, array: str, sources: Sequence[str], concat: str, *, coordinate: bool
) -> None:
    """Refuse an array without the concat axis whose values change from one source to another.

    So is one that no scan could compare.
    """
    first = sources[0]
    digests = {s: physical.have[s][array].digest for s in sources}
    unknown = next((s for s in sources if digests[s] is None), None)
    if len(sources) > 1 and unknown is not None:
        why = (
            "has an encoding that the scan cannot decode"
            if coordinate
            else "is too large for the scan"
        )
        raise PlanError(
            f"{unknown}: array {array!r} has no axis {concat!r}, so one source would stand for all {len(sources)}, "
            f"and it {why} to tell whether they are equal; leave it out with scan.arrays, "
            f"or publish one source of it as a dataset of its own"
        )
    other = next((s for s in sources if digests[s] != digests[first]), None)
    if other is None:
        return
    where = differing(physical, array, first, other)
    comes_along = coordinate and physical.meta(first, array).dims
    raise PlanError(
        f"{other}: array {array!r} has no axis {concat!r} and differs from that of {first}{where}; "
        f"a grid that changes is another dataset: say plan.eras: auto, or leave these sources out with "
        f"source.pattern{'' if comes_along else ', or the array with scan.arrays'}"
    )


def differing(physical: Physical, array: str, first: str, other: str) -> str:
    """The first place where two sources' values differ, for a sentence; empty if they were not kept."""
    if not (physical.have[first][array].kept and physical.have[other][array].kept):
        return ""
    a, b = physical.values(first, array), physical.values(other, array)
    if a.shape != b.shape:
        return f": shape {b.shape} against {a.shape}"
    at = next(
        (
            i
            for i, (x, y) in enumerate(zip(a.flat, b.flat, strict=True))
            if x.tobytes() != y.tobytes()
        ),
        0,
    )
    return f": element {at} is {b.flat[at]} against {a.flat[at]}"
