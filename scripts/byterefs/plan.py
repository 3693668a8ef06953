"""The plan: which source's slab sits where in each global array, and what the arrays are.

Refuses what cannot be true (mdim-refs/0.2 "Rules"; design section 6), each by name with both values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from byterefs import FORMAT, consistency, urls, vrt
from byterefs.arrays import Maker
from byterefs.axis import Units
from byterefs.checks import refuse_names
from byterefs.discover import select
from byterefs.engines import ENGINES, Concat, Layout, find_concat
from byterefs.errors import PlanError
from byterefs.files import canonical, digest, replacing, write_json
from byterefs.grid import elements
from byterefs.model import Array
from byterefs.physical import Physical
from byterefs.records import array_row
from byterefs.roles import Roles, by_value
from byterefs.store import reading, writing

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The global arrays of a dataset and what is said of it as a whole."""

    arrays: Mapping[str, Array]
    order: tuple[str, ...]
    """planned sources in plan order"""
    root: Mapping[str, Any]
    root_dtypes: Mapping[str, str]
    varying: Sequence[str]
    report: Mapping[str, Any]


def plan(store: Path, out: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Write placements into the store, and ``plan.vrt`` and ``consistency.json`` into ``out``.

    Returns ``{"digest", "counts"}``. Raises PlanError, after the report is written, for sources that
    cannot be one dataset; the store and an earlier plan.vrt are then left as they were.
    """
    with reading(store) as con:
        physical = Physical.load(con)
        chosen, lost = choose(physical, config)
        made = build(physical, chosen, lost, config, out)
    remap = config.get("remap") or {}
    check_remap(made.order, remap)
    text = vrt.write(made.arrays, made.root, made.root_dtypes)
    facts = {
        "dataset": config["dataset"],
        "title": config.get("title") or config["dataset"],
        "root": canonical(made.root),
        "root_dtypes": canonical(made.root_dtypes),
        "varying": canonical(list(made.varying)),
        "prefix": provider_prefix(config),
        "order": canonical(list(made.order)),
        "wanted": canonical(list((config.get("scan") or {}).get("arrays") or [])),
    }
    save(store, made, facts, remap, text)
    with replacing(out / "plan.vrt") as part:
        part.write_text(text)
    n = sum(len(a.placements) for a in made.arrays.values())
    counts = {"sources": len(made.order), "arrays": len(made.arrays), "placements": n}
    refused = {a.array: a.refused for a in made.arrays.values() if a.refused}
    return {
        "digest": digest([facts, text, remap]),
        "counts": counts,
        "refused": refused,
    }


def choose(physical: Physical, config: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Sources that win their slot, and why the others are not planned: source -> reason."""
    whole = [s for s in physical.sources if s not in physical.refused]
    if not whole:
        raise PlanError(
            f"dataset {config['dataset']!r}: no source could be scanned; see logs/{config['dataset']}/scan"
        )
    wanted = config["select"]
    found = select.winners(
        whole,
        config["source"]["pattern"],
        wanted["slot"],
        wanted["prefer"],
        root=select.root(config["source"]),
    )
    lost = {s: f"{winner} is preferred in its slot" for s, winner in found.losers.items()}
    return sorted(found.winners.values()), {**physical.refused, **lost}


def build(
    physical: Physical,
    chosen: Sequence[str],
    lost: Mapping[str, str],
    config: Mapping[str, Any],
    out: Path,
) -> Plan:
    """The plan of the chosen sources. Writes ``consistency.json`` into ``out`` before it refuses."""
    options = config.get("plan") or {}
    if options.get("eras", "refuse") != "refuse":
        raise PlanError(f"plan.eras: {options['eras']!r} is not built yet; only 'refuse' is")
    roles = Roles.of(physical, chosen, config)
    concat = find_concat(physical, chosen, options["concat"]) if options.get("concat") else None
    if concat is None and len(chosen) > 1:
        raise PlanError(
            f"dataset {config['dataset']!r}: {len(chosen)} sources and no plan.concat; name the axis that joins them"
        )
    layout = Layout(tuple(chosen), {}, {})
    report: dict[str, Any] = {"lost": dict(sorted(lost.items()))}
    if concat is not None:
        signatures = sign(physical, chosen, concat, roles)
        write_json(out / "consistency.json", consistency.report(signatures, report))
        layout = ENGINES[options.get("engine", "coordinates")](physical, chosen, concat, options)
    signatures = sign(physical, layout.order, concat, roles, layout.sizes)
    report = consistency.report(signatures, report)
    write_json(out / "consistency.json", report)
    maker = Maker(physical, layout, concat, roles, config)
    arrays, left_out = make(maker, signatures, config["dataset"])
    report |= {"left_out": left_out, "varying_attrs": {n: v for n, v in maker.varying.items() if v}}
    write_json(out / "consistency.json", report)
    refuse_names(arrays)
    root, dtypes, varying = physical.roots(layout.order)
    return Plan(arrays, layout.order, root, dtypes, varying, report)


def make(
    maker: Maker,
    signatures: Mapping[str, Sequence[tuple[str, consistency.Signature]]],
    dataset: str,
) -> tuple[dict[str, Array], dict[str, str]]:
    """The global arrays, and why others were left out: scalars that nobody asked for and that vary."""
    arrays, left_out = {}, {}
    for name, order in sorted(signatures.items()):
        try:
            consistency.check(name, order, dataset)
            arrays[name] = maker.array(name)
        except PlanError as e:
            if name in maker.roles.needed:
                raise
            left_out[name] = str(e)
            log.warning("plan %s: %r is left out: %s", dataset, name, e)
    return arrays, left_out


def sign(
    physical: Physical,
    order: Sequence[str],
    concat: Concat | None,
    roles: Roles,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, list[tuple[str, consistency.Signature]]]:
    """Per array, each source's signature in plan order; ``sizes`` are those of the layout."""
    dims = set(sizes) | ({concat.dim} if concat else set())
    out: dict[str, list[tuple[str, consistency.Signature]]] = {}
    cache: dict[tuple[str, bool, Units | None], consistency.Signature] = {}
    for name in sorted({a for s in order for a in physical.have[s]}):
        inline = by_value(physical, order, name, roles, sizes)
        for source in order:
            if name not in physical.have[source]:
                continue
            meta = physical.meta(source, name)
            # units are converted along the concat axis only; a scalar that counts from another day differs
            along = not dims.isdisjoint(meta.dims)
            units = roles.units(physical, source, name) if along else None
            key = (physical.have[source][name].meta, inline, units)
            if key not in cache:
                cache[key] = consistency.signature(
                    physical.metas[key[0]], concat=dims, by_value=inline, units=units
                )
            out.setdefault(name, []).append((source, cache[key]))
    return out


def check_remap(sources: Sequence[str], remap: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a target whose rules do not cover every planned source (RemapError)."""
    for target, rules in sorted(remap.items()):
        for source in sources:
            urls.remap(source, list(rules.items()), target=target)


def provider_prefix(config: Mapping[str, Any]) -> str | None:
    """The folder or bucket that all sources of a provider share, with a trailing slash; None where there is none."""
    source = config["source"]
    if source["provider"] == "listing":
        return None
    prefix = select.root(source).rstrip("/") + "/"
    # Icechunk 2.3 refuses a container for all of file:///
    return None if prefix == "/" else prefix


def save(
    store: Path,
    made: Plan,
    facts: Mapping[str, Any],
    remap: Mapping[str, Mapping[str, str]],
    text: str,
) -> None:
    """Replace the plan in the working store, in one transaction."""
    with writing(store) as con:
        ids = dict(con.execute("SELECT source, source_id FROM sources"))
        for table in ("arrays", "placements", "remap"):
            con.execute(f"DELETE FROM {table}")
        con.execute("DELETE FROM meta WHERE key != 'store_version'")
        con.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            {"format_version": FORMAT, "plan": text, **facts}.items(),
        )
        con.executemany(
            "INSERT INTO remap VALUES (?, ?, ?)",
            [(t, p, r) for t, rules in sorted(remap.items()) for p, r in sorted(rules.items())],
        )
        for a in made.arrays.values():
            con.execute(f"INSERT INTO arrays VALUES ({', '.join('?' * 16)})", array_row(a))
            con.executemany(
                "INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        a.array,
                        elements(p.dest),
                        ids[p.source],
                        p.source_array,
                        elements(p.src_offset),
                        elements(p.count),
                        i,
                    )
                    for i, p in enumerate(a.placements)
                ],
            )
