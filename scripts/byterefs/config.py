"""Dataset configs: YAML in, a checked mapping with every default filled out, or one sentence why not.

The Snakefile imports this module on every start, so it imports nothing heavy. The schemas in
``config/schema`` say what a key means; what JSON Schema cannot say is checked by ``config_checks``.
"""

from __future__ import annotations

import copy
import difflib
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from byterefs import config_checks
from byterefs.errors import ConfigError

SCHEMAS = Path(__file__).resolve().parents[2] / "config" / "schema"


def load_settings(config: Mapping[str, Any], where: str = "config/config.yaml") -> dict[str, Any]:
    """The content of config.yaml, checked, with defaults."""
    # snakemake --config hands over `true` as text, and only `True` as a truth value
    words = {"true": True, "false": False}
    told = {k: words.get(v, v) if isinstance(v, str) else v for k, v in config.items()}
    settings = check(told, "config", where)
    config_checks.check_secrets(settings, Path(where))
    if "catalogue" in settings:
        settings["catalogue"]["to"] = absolute(settings["catalogue"]["to"])
    return settings


def load_datasets(config: Mapping[str, Any], where: str = "config/config.yaml") -> dict[str, Any]:
    """Every dataset that ``config`` (the content of config.yaml) names, checked, by name."""
    settings = load_settings(config, where)
    folder = settings["dataset_folder"]
    paths = [
        Path(name if name.endswith(".yaml") else os.path.join(folder, f"{name}.yaml"))
        for name in settings["datasets"]
    ]
    datasets: dict[str, Any] = {}
    for path in paths:
        dataset = load(path)
        if dataset["dataset"] in datasets:
            raise ConfigError(
                f"{where}: datasets: two datasets have the name {dataset['dataset']!r} (the second is "
                f"{path}); give one of them another name, or list it once"
            )
        datasets[dataset["dataset"]] = dataset
    config_checks.check_catalogue(settings.get("catalogue"), datasets, where)
    return datasets


def load(path: Path) -> dict[str, Any]:
    """One dataset config with every default filled and its paths made absolute."""
    dataset = check(_worded(read(path)), "dataset", str(path))
    config_checks.check_names(dataset, path)
    config_checks.check_secrets(dataset, path)
    config_checks.check_select(dataset, path)
    config_checks.check_eras(dataset, path)
    _fill_file_name(dataset, path)
    config_checks.check_targets(dataset, path)
    return _absolute(dataset)


def _worded(dataset: Any) -> Any:
    """The dataset with names and slots of eras as text: YAML reads ``2010`` and ``20100101`` as numbers."""
    plan = dataset.get("plan") if isinstance(dataset, dict) else None
    if isinstance(plan, dict) and isinstance(plan.get("eras"), dict):
        plan["eras"] = _texts(plan["eras"])
    return dataset


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _texts(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_texts(v) for v in value]
    return str(value) if isinstance(value, int | date) else {} if value is None else value


def read(path: Path) -> Any:
    """What a YAML file holds; a key that stands twice in one mapping is refused."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, _siblings(path), n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        raise ConfigError(f"{path}: there is no such dataset file{hint}") from None
    try:
        return yaml.load(text, Loader=_Unique)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from None


def check(value: Any, schema: str, where: str) -> dict[str, Any]:
    """``value`` with the defaults of ``config/schema/<schema>.yaml``; ConfigError if it does not fit."""
    rules = load_schema(schema)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: a mapping of keys is expected here, not {value!r}")
    filled: dict[str, Any] = fill(copy.deepcopy(dict(value)), rules)
    errors = sorted(Draft202012Validator(rules).iter_errors(filled), key=_rank)
    if errors:
        raise ConfigError(f"{where}: {sentence(errors[0], rules)}")
    return filled


@cache
def load_schema(name: str) -> dict[str, Any]:
    """The JSON Schema ``config/schema/<name>.yaml``."""
    schema: dict[str, Any] = yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8"))
    return schema


def fill(value: Any, schema: Mapping[str, Any]) -> Any:
    """``value`` with the defaults of ``schema`` where a key is absent; changes ``value`` in place."""
    if isinstance(value, dict):
        for key, rule in schema.get("properties", {}).items():
            if key not in value and "default" in rule:
                value[key] = copy.deepcopy(rule["default"])
            if key in value:
                # `vrt:` with nothing behind it is how YAML writes an empty mapping
                if value[key] is None and rule.get("type") == "object":
                    value[key] = {}
                fill(value[key], rule)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            fill(item, schema["items"])
    return value


def sentence(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """What is wrong, with the place, the value and what would be right."""
    place = ".".join(str(p) for p in error.absolute_path)
    at = f"{place}: " if place else ""
    match error.validator:
        case "additionalProperties":
            return at + _unknown(error, schema)
        case "required":
            missing = next(k for k in error.validator_value if k not in error.instance)
            return f"{at}the key `{missing}` is missing"
        case "enum":
            choices = ", ".join(map(str, error.validator_value))
            return f"{at}{error.instance!r} is none of: {choices}"
        case "type":
            wanted = error.validator_value
            wanted = wanted if isinstance(wanted, str) else " or ".join(wanted)
            return f"{at}{error.instance!r} is no {wanted}"
        case "pattern":
            return f"{at}{error.instance!r} does not match {error.validator_value}"
        case "anyOf":
            return f"{at}{error.instance!r} does not fit: {error.schema['description']}"
        case _:
            return f"{at}{error.message}"


def _unknown(error: ValidationError, schema: Mapping[str, Any]) -> str:
    known = list(error.schema.get("properties", {}))
    key = next(k for k in error.instance if k not in known)
    near = difflib.get_close_matches(str(key), known, n=1)
    if near:
        return f"unknown key `{key}`; did you mean `{near[0]}`?"
    elsewhere = [p for p in keys(schema) if p.rsplit(".", 1)[-1] == key]
    if elsewhere:
        return f"unknown key `{key}`; it belongs at `{elsewhere[0]}`"
    return f"unknown key `{key}`; known here: {', '.join(known)}"


def keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted path of every key that a schema knows, in its own order."""
    for key, rule in schema.get("properties", {}).items():
        yield prefix + key
        yield from keys(rule, f"{prefix}{key}.")
        yield from keys(rule.get("items", {}), f"{prefix}{key}[].")


def _rank(error: ValidationError) -> tuple[int, list[str]]:
    """Unknown keys first, missing ones last: a misspelt key or provider also makes one missing."""
    rank = {"additionalProperties": 0, "required": 2}.get(str(error.validator), 1)
    return rank, [str(p) for p in error.absolute_path]


def _fill_file_name(dataset: dict[str, Any], path: Path) -> None:
    """Give ``scan.file_name`` the pattern and the root of ``source``, and check its groups."""
    rules = dataset["scan"].get("file_name")
    if rules is None:
        return
    source = dataset["source"]
    rules.setdefault("pattern", source["pattern"])
    own = {"provider": source["provider"]} if source["provider"] == "listing" else source
    rules.setdefault("below", absolute(own["path"]) if "path" in own else own.get("url", ""))
    try:
        groups = re.compile(rules["pattern"]).groupindex
    except re.error as error:
        raise ConfigError(
            f"{path}: scan.file_name.pattern: {rules['pattern']!r} is no regular expression: {error}"
        ) from None
    rule = rules.get("coordinate", {})
    for key, group in (("array", rules.get("array")), ("coordinate.from", rule.get("from"))):
        if group is not None and group not in groups:
            raise ConfigError(
                f"{path}: scan.file_name.{key}: {group!r} is no named group of {rules['pattern']!r} (it has: "
                f"{', '.join(groups) or 'none'}); write (?P<{group}>…) in the pattern"
            )
    if rule and dataset["plan"]["concat"] is None:
        raise ConfigError(
            f"{path}: scan.file_name.coordinate: there is no axis for it; name one in plan.concat"
        )
    if rule.get("format") and " since " not in rule.get("units", "").lower():
        raise ConfigError(
            f"{path}: scan.file_name.coordinate.units: {rule.get('units')!r} count no time, and `format` reads "
            f"a date; write for example `days since 1970-01-01`"
        )


def _absolute(dataset: dict[str, Any]) -> dict[str, Any]:
    """``dataset`` with every path that is relative to the working directory made absolute."""
    for section, key in (("source", "path"), ("plan", "vrt")):
        if key in dataset[section]:
            dataset[section][key] = absolute(dataset[section][key])
    references = dataset["scan"].get("references")
    if references:
        rename = references.get("rename") or {}
        references["path"] = absolute(references["path"])
        references["rename"] = {prefix: absolute(mine) for prefix, mine in rename.items()}
    dataset["remap"] = {
        target: {absolute(prefix): replacement for prefix, replacement in rules.items()}
        for target, rules in dataset["remap"].items()
    }
    for entry in dataset["sync"]:
        entry["to"] = absolute(entry["to"])
    return dataset


def absolute(path: str) -> str:
    """A relative path from the working directory; URLs and absolute paths as they are."""
    if "://" in path or path.startswith("/"):
        return path
    # normpath drops the slash that makes a prefix end on a path boundary
    return os.path.abspath(path) + ("/" if path.endswith("/") else "")


def _siblings(path: Path) -> list[str]:
    return [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []


class _Unique(yaml.SafeLoader):
    """YAML's safe types; PyYAML itself keeps the last of two equal keys and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            texts = [str(key.value) for key, _ in node.value]
            twice = next((t for t in texts if texts.count(t) > 1), texts[0])
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice!r} stands twice in one mapping", node.start_mark
            )
        return mapping
