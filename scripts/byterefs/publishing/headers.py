"""What an object in a bucket says of itself: media type, caching, digests."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path, PurePosixPath
from typing import Any

PART = 64 << 20
"""bytes: up to this size a file is one PUT, whose ETag is its MD5; above, parts of this size"""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".geojson": "application/geo+json",
    ".csv": "text/csv; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".vrt": "application/xml",
    ".parquet": "application/vnd.apache.parquet",
}
NEVER = "no-cache"
"""Cache-Control of what changes under its name"""


def kind(key: str) -> str:
    """The media type of a key, for browsers."""
    return KINDS.get(PurePosixPath(key).suffix, "application/octet-stream")


def fixed(key: str) -> bool:
    """Whether what lies under a key never changes."""
    return key.startswith("v/") or (key.startswith("icechunk/") and key.count("/") > 1)


def of(key: str, sha256: str) -> dict[str, Any]:
    """What an object says of itself."""
    caching = {} if fixed(key) else {"CacheControl": NEVER}
    return {"Metadata": {"sha256": sha256}, "ContentType": kind(key), **caching}


def md5(body: bytes) -> str:
    """MD5 as Content-MD5 has it."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def etag_of(path: Path) -> str:
    """The ETag that an upload of a file has: its MD5, or the MD5 of those of its parts and their number."""
    with path.open("rb") as f:
        parts = [
            hashlib.md5(p, usedforsecurity=False).digest() for p in iter(lambda: f.read(PART), b"")
        ]
    if len(parts) <= 1:
        return (parts[0] if parts else hashlib.md5(usedforsecurity=False).digest()).hex()
    return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
