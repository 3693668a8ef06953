"""The plan: which source's slab sits where in each global array, and what the arrays are.

Refuses what cannot be true (mdim-refs/0.2 "Rules"; design section 6), each by name with both values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from byterefs import FORMAT, urls
from byterefs.access import ranges
from byterefs.database import reading, writing
from byterefs.discover import select
from byterefs.errors import ByteRefsError, PlanError, RemapError
from byterefs.files import canonical, digest, replacing, write_json
from byterefs.planning import consistency_page, consistency_table, vrt
from byterefs.planning.compose import Plan, compose
from byterefs.planning.physical import Physical
from byterefs.planning.records import array_row
from byterefs.slabs import Slabs
from byterefs.store import drop_plan

log = logging.getLogger(__name__)


def plan(store: Path, out: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Write placements into the store, and ``plan.vrt`` and the consistency report into ``out``.

    Returns ``{"digest", "counts", "refused"}``. Raises PlanError for sources that cannot be one dataset:
    the report is written all the same, the store and an earlier plan.vrt are left as they were.
    """
    report: dict[str, Any] = {"dataset": config["dataset"]}
    try:
        with reading(store) as con:
            physical = Physical.load(con)
            chosen, report["lost"] = choose(physical, config)
            with ranges.asking(access(config)):
                made = compose(physical, chosen, config, report)
        rules = config.get("remap") or {}
        remap = {target: urls.respelled(r, made.order) for target, r in rules.items()}
        check_remap(made.order, remap)
        check_allowed(made.order, remap, config["targets"])
        text = vrt.write(made.all_arrays, made.root, made.root_dtypes)
    except ByteRefsError as e:
        write_report(out, {**report, "refused": str(e)})
        raise
    write_report(out, report)
    facts = {
        "dataset": config["dataset"],
        "title": config.get("title") or config["dataset"],
        "root": canonical(made.root),
        "root_dtypes": canonical(made.root_dtypes),
        "varying": canonical(list(made.varying)),
        "prefix": provider_prefix(config),
        "order": canonical(list(made.order)),
        "endpoints": canonical(endpoints(config)),
        "wanted": canonical(list((config.get("scan") or {}).get("arrays") or [])),
        "eras": canonical(list(made.eras)),
        "across": canonical(sorted(made.across)),
    }
    save(store, made, facts, remap, text)
    with replacing(out / "plan.vrt") as part:
        part.write_text(text)
    n = sum(len(a.placements) for a in made.arrays.values())
    counts = {"sources": len(made.order), "arrays": len(made.arrays), "placements": n}
    if made.eras:
        counts["eras"] = len(made.eras)
    refused = {a.array: a.refused for a in made.arrays.values() if a.refused}
    return {"digest": digest([facts, text, remap]), "counts": counts, "refused": refused}


def write_report(out: Path, report: Mapping[str, Any]) -> None:
    """The consistency report as JSON and as a page; its table goes to the log where something differs."""
    write_json(out / "consistency.json", report)
    with replacing(out / "consistency.html") as part:
        part.write_text(consistency_page.page(report), encoding="utf-8")
    if "refused" in report or not all(a["consistent"] for a in report["arrays"].values()):
        log.info("%s", consistency_table.text(report))


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
    return sorted(found.winners.values()), dict(sorted({**physical.refused, **lost}.items()))


def access(config: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks buckets, for the engine that opens sources; empty where none does."""
    source = config["source"] if config["plan"]["engine"] == "mosaic" else {}
    return {key: source[key] for key in ("endpoint", "profile", "anonymous") if source.get(key)}


def check_remap(sources: Sequence[str], remap: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a target whose rules do not cover every planned source (RemapError)."""
    for target, rules in sorted(remap.items()):
        for source in sources:
            urls.remap(source, list(rules.items()), target=target)


def endpoints(config: Mapping[str, Any]) -> dict[str, str]:
    """Target -> the address of the object store that serves its paths, where the config names one."""
    own = config["source"].get("endpoint")
    said = {t: str(told["endpoint"]) for t, told in config["targets"].items() if "endpoint" in told}
    return ({"access": str(own)} if own else {}) | said


def check_allowed(
    sources: Sequence[str],
    remap: Mapping[str, Mapping[str, str]],
    targets: Mapping[str, Mapping[str, Any]],
) -> None:
    """Refuse a target that would serve a source under none of the prefixes that it allows (RemapError)."""
    for target, told in sorted(targets.items()):
        rules = list(remap.get(target, {}).items())
        for source in sources if "allow" in told else ():
            path = urls.remap(source, rules, target=target)
            if not urls.allowed(path, told["allow"]):
                raise RemapError(
                    f"{source}: target {target!r} would serve it as {path}, and it allows only "
                    f"{', '.join(told['allow'])}; correct remap.{target}, or add the prefix to targets.{target}.allow"
                )


def provider_prefix(config: Mapping[str, Any]) -> str | None:
    """The folder or bucket that all sources of a provider share, with a trailing slash; None where there is none."""
    source = config["source"]
    if source["provider"] not in ("local", "http", "s3"):
        return None  # its sources may lie anywhere
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
        drop_plan(con)
        con.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            {"format_version": FORMAT, "plan": text, **facts}.items(),
        )
        con.executemany(
            "INSERT INTO remap VALUES (?, ?, ?)",
            [(t, p, r) for t, rules in sorted(remap.items()) for p, r in sorted(rules.items())],
        )
        numbers = {source: i for i, source in enumerate(made.order)}
        for a in made.all_arrays.values():
            con.execute(f"INSERT INTO arrays VALUES ({', '.join('?' * 16)})", array_row(a))
            names, slabs = Slabs.of(a.placements, len(a.dims)).packed(numbers)
            con.execute(
                "INSERT INTO byterefs_placements VALUES (?, ?, ?)",
                (a.array, canonical(names), slabs),
            )
