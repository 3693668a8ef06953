"""Files that are either whole or not there: write beside, then rename; sorted JSON; digests."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A neighbour of ``path`` to write to; it takes the place of ``path`` only if nothing was raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("rb") as f:
            os.fsync(f.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values, equal text. NaN and infinities are refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of ``value``, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Sorted, indented JSON at ``path``, whole or not at all."""
    with replacing(path) as part:
        part.write_text(
            json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        )


def write_json_if_changed(path: Path, value: Any) -> bool:
    """Write only if the content differs, so that an equal file keeps its mtime; True if written."""
    if path.exists() and path.read_text() == (
        json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    ):
        return False
    write_json(path, value)
    return True


def covers(folder: Path) -> dict[str, str]:
    """Every file under ``folder`` by its relative path, with its sha256; hidden ``.part`` files are left out."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(".part"))
    return {p.relative_to(folder).as_posix(): file_digest(p) for p in files}
