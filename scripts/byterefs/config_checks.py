"""What a dataset config must hold to and JSON Schema cannot say; ConfigError in one sentence if it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from byterefs import urls
from byterefs.errors import ConfigError

STAGES = (
    "discover",
    "scan",
    "store",
    "plan",
    "view",
    "emit",
    "verify",
    "sync",
    "register",
    "report",
)
RESERVED = {"all", "access"} | set(STAGES)
"""Names that a dataset cannot have: stages, and words with a meaning of their own."""


def check_names(dataset: Mapping[str, Any], path: Path) -> None:
    """Refuse a name that is not the file's, and one that means something else."""
    name = dataset["dataset"]
    if name != path.stem:
        raise ConfigError(
            f"{path}: dataset: the name {name!r} and the file's name differ; rename one of them"
        )
    if name in RESERVED:
        raise ConfigError(f"{path}: dataset: {name!r} is a reserved name; give it another one")


def check_secrets(value: Any, path: Path, place: str = "") -> None:
    """Refuse an address that holds a password or a signature; it is not shown."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in items:
        here = f"{place}.{key}" if place else str(key)
        for text in (key, item):
            if isinstance(text, str) and urls.secret(text):
                raise ConfigError(
                    f"{path}: {here.partition('?')[0].rpartition('@')[2]}: an address with a password or a signature "
                    "does not belong in a config; name a profile of the AWS configuration, or a public address"
                )
        if isinstance(item, Mapping | list):
            check_secrets(item, path, here)


def check_select(dataset: Mapping[str, Any], path: Path) -> None:
    """Refuse a pattern that is none, and slots and preferences of groups that it has not."""
    pattern = dataset["source"]["pattern"]
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ConfigError(
            f"{path}: source.pattern: {pattern!r} is no regular expression: {error}"
        ) from None
    select = dataset["select"]
    for key, used in (("slot", select["slot"]), ("prefer", list(select["prefer"]))):
        for group in used:
            if group not in groups:
                known = ", ".join(groups) or "none"
                raise ConfigError(
                    f"{path}: select.{key}: {group!r} is no named group of source.pattern "
                    f"(it has: {known}); write (?P<{group}>…) in the pattern"
                )


def check_eras(dataset: Mapping[str, Any], path: Path) -> None:
    """Refuse eras without an axis to follow each other on, and slots where there are none."""
    eras = dataset["plan"]["eras"]
    if eras != "refuse" and dataset["plan"]["concat"] is None:
        raise ConfigError(
            f"{path}: plan.eras: eras follow each other along an axis; name it in plan.concat"
        )
    if isinstance(eras, dict) and not dataset["select"]["slot"]:
        raise ConfigError(
            f"{path}: plan.eras: eras begin and end at slots; name the groups that make a slot in select.slot"
        )


def check_targets(dataset: Mapping[str, Any], path: Path) -> None:
    """Refuse a target that no rule of ``remap`` makes."""
    targets = ["access", *dataset["remap"]]
    for target in dataset["targets"]:
        if target not in targets:
            raise ConfigError(
                f"{path}: targets.{target}: there is no such target; `remap` makes these: {', '.join(targets)}"
            )
    used = [(f"sync.{i}.target", s["target"]) for i, s in enumerate(dataset["sync"])]
    sqlite = dataset["emit"].get("sqlite", {}).get("sources")
    used += [("emit.sqlite.sources", sqlite)] if sqlite else []
    for key, target in used:
        if target not in targets:
            raise ConfigError(
                f"{path}: {key}: there is no target {target!r}; `remap` makes these: "
                f"{', '.join(targets)}"
            )
    check_sync(dataset["sync"], path)


def check_sync(syncs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Refuse two publications of one name, and a mirror of what does not stand before it."""
    names = [s["name"] for s in syncs]
    for i, entry in enumerate(syncs):
        if entry["name"] in names[:i]:
            raise ConfigError(f"{path}: sync: two publications have the name {entry['name']!r}")
        if entry.get("mirror_of", entry["name"]) not in names[: i + 1]:
            raise ConfigError(
                f"{path}: sync.{i}.mirror_of: no publication {entry['mirror_of']!r} stands before it"
            )


def check_catalogue(
    place: Mapping[str, Any] | None, datasets: Mapping[str, Any], where: str
) -> None:
    """Refuse a place for the catalogue whose files a publication has as its own, or would remove."""
    if place is None:
        return
    for name, dataset in datasets.items():
        for entry in dataset["sync"]:
            same = entry.get("endpoint") == place.get("endpoint")
            if same and f"{place['to']}/".startswith(f"{entry['to'].rstrip('/')}/"):
                raise ConfigError(
                    f"{where}: catalogue.to: {place['to']} belongs to the publication {entry['name']!r} of "
                    f"{name!r}; give the catalogue a place of its own, the folder above it for one"
                )
