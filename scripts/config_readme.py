"""Write config/README.md from the schemas, so that every key is described where it is checked."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from byterefs.config import load_schema

HEAD = """# Configuration

Generated from `config/schema/` by `python scripts/config_readme.py`; edit the schemas, not this page.
An unknown key is an error that names the nearest known one. Relative paths start at the working
directory. Credentials never stand here: they come from the usual AWS chain, by profile name.
"""


def text() -> str:
    """The page: one table of keys per schema, in the schema's order."""
    return "\n".join([HEAD, *section("config"), *section("dataset")]) + "\n"


def section(name: str) -> Iterator[str]:
    """The lines of one schema."""
    schema = load_schema(name)
    yield f"## `{schema['title']}`\n\n{schema['description']}\n"
    yield "| key | default | what it says |\n|---|---|---|"
    yield from rows(schema)
    yield ""


def rows(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """One table row per key, keys below a section after it."""
    for key, rule in schema.get("properties", {}).items():
        said = " ".join(rule["description"].split()).replace("|", "\\|")
        if "enum" in rule:
            said += f" One of {', '.join(f'`{value}`' for value in rule['enum'])}."
        yield f"| `{prefix}{key}` | {default(key, rule, schema)} | {said} |"
        yield from rows(rule, f"{prefix}{key}.")
        yield from rows(rule.get("items", {}), f"{prefix}{key}[].")


def default(key: str, rule: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What the table says in the column of defaults."""
    if key in schema.get("required", ()):
        return "required"
    if "default" not in rule:
        return ""
    shown = yaml.safe_dump(rule["default"], default_flow_style=True, width=1000, sort_keys=False)
    return f"`{shown.replace('...', '').strip()}`"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    page = Path(__file__).parents[1] / "config" / "README.md"
    page.write_text(text(), encoding="utf-8")
