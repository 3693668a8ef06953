"""One grammar for the addresses of a byte: what each reader wants of the same path, and remapping.

A *source* is kept verbatim as it was opened: a plain path, ``/vsicurl/https://…``, ``/vsis3/…``,
``https://…``, ``s3://…`` or ``file:///…``. Readers want different spellings of it (research/s3.md,
2.1), and Icechunk wants it percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote, unquote

from byterefs.errors import RemapError

Rules = Sequence[tuple[str, str]]
ICECHUNK_SAFE = "/:@!$&'()*+,;=~-._"
"""left as they are in an Icechunk location; space, ``%``, ``#``, ``?`` and non-ASCII are encoded"""


def to_url(path: str) -> str:
    """A path or GDAL name as ``scheme://…``; a plain absolute path becomes ``file:///…``, unencoded."""
    if path.startswith("/vsicurl/"):
        return path.removeprefix("/vsicurl/")
    if path.startswith("/vsicurl?"):
        options = path.removeprefix("/vsicurl?").split("&")
        return unquote(next(o for o in options if o.startswith("url=")).removeprefix("url="))
    if path.startswith("/vsis3/"):
        return "s3://" + path.removeprefix("/vsis3/")
    if "://" in path:
        return path
    return "file://" + path


def to_path(source: str) -> str:
    """The path of a local source; of any other one its name as it stands."""
    return source.removeprefix("file://")


def is_local(source: str) -> bool:
    """Whether a source lies in a file system of this machine."""
    return to_url(source).startswith("file://")


def to_gdal(path: str) -> str:
    """The name under which GDAL opens a path: ``/vsicurl/https://…``, ``/vsis3/…`` or a plain path."""
    if path.startswith(("http://", "https://")):
        return "/vsicurl/" + path
    if path.startswith("s3://"):
        return "/vsis3/" + path.removeprefix("s3://")
    return path.removeprefix("file://")


def to_fsspec(path: str) -> str:
    """The name under which fsspec opens a path: ``https://…``, ``s3://…`` or a plain path."""
    return to_url(path).removeprefix("file://")


def to_https(path: str) -> str:
    """The name under which a browser fetches a path: AWS serves ``s3://bucket/key`` at a host of the bucket's."""
    url = to_url(path)
    if url.startswith("s3://"):
        bucket, _, key = url.removeprefix("s3://").partition("/")
        return f"https://{bucket}.s3.amazonaws.com/{key}"
    return url


def is_http(path: str) -> bool:
    """Whether a path is an address of a web server, where names are percent-encoded already."""
    return to_url(path).startswith(("http://", "https://"))


def plain(path: str) -> str:
    """A path as ``scheme://…`` with its names as a file system has them: decoded if it is an http address."""
    return unquote(to_url(path)) if is_http(path) else to_url(path)


@lru_cache(maxsize=2**17)
def to_icechunk(path: str) -> str:
    """The URL of an Icechunk virtual location, percent-encoded (research/peers.md, B43)."""
    scheme, _, rest = plain(path).partition("://")
    return f"{scheme}://{quote(rest, safe=ICECHUNK_SAFE)}"


def from_icechunk(url: str) -> str:
    """The unencoded URL of an Icechunk location: :func:`plain` of what :func:`to_icechunk` was given."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{unquote(rest)}"


def matches(path: str, prefix: str) -> bool:
    """Whether ``prefix`` is the start of ``path`` and ends on a path boundary."""
    return path.startswith(prefix) and (
        prefix.endswith("/") or len(path) == len(prefix) or path[len(prefix)] == "/"
    )


def longest_first(rules: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Remap rules in the order in which they are tried: longest prefix first, then by name."""
    return sorted(rules, key=lambda rule: (-len(rule[0]), rule))


def allowed(path: str, prefixes: Iterable[str]) -> bool:
    """Whether a path lies under one of some prefixes, however either is spelled."""
    return any(matches(to_url(path), to_url(prefix)) for prefix in prefixes)


SECRET = re.compile(
    r"://[^/?#@]*:[^/?#@]*@|[?&](?:[\w-]*signature|sig|[\w-]*token|[\w-]*key|password|AWSAccessKeyId)=",
    re.IGNORECASE,
)
"""a user with a password, and what signs an address"""


def secret(path: str) -> bool:
    """Whether an address holds what opens it: it must not be written anywhere."""
    return SECRET.search(path) is not None


def spellings(path: str) -> list[str]:
    """The ways to write a path or a prefix, its own first: as GDAL has it, and as ``scheme://…``.

    >>> spellings("/vsis3/b/k"), spellings("file:///d/")
    (['/vsis3/b/k', 's3://b/k'], ['file:///d/', '/d/'])
    """
    url = to_url(path)
    return list(dict.fromkeys((path, url, to_gdal(url))))


def respelled(rules: Mapping[str, str], sources: Iterable[str]) -> dict[str, str]:
    """Remap rules with their prefixes as the sources are spelled; a rule that is of no source stays as it is.

    Whoever reads a table compares prefixes with sources letter by letter (mdim-refs/0.2, "Remap at publish").
    A rule in the sources' own spelling goes before one in another.
    """
    every = list(sources)
    needed = {
        p: [s for s in spellings(p) if any(matches(source, s) for source in every)] for p in rules
    }
    found = {p: rules[p] for p in rules if p in needed[p] or not needed[p]}
    for prefix, others in needed.items():
        for other in others:
            found.setdefault(other, rules[prefix])
    return found


def remap(path: str, rules: Rules, *, target: str) -> str:
    """``path`` with its longest matching prefix replaced (mdim-refs/0.2, "Remap at publish").

    What follows the prefix is percent-encoded where files become addresses of a web server (``day 1.nc``,
    ``day%201.nc``), and decoded the other way. Without rules (the target ``access``) the path itself.
    Raises RemapError if no rule matches.
    """
    if not rules:
        return path
    for prefix, replacement in longest_first(rules):
        if matches(path, prefix):
            return replacement + carried(path[len(prefix) :], is_http(prefix), is_http(replacement))
    raise RemapError(
        f"{path}: no remap rule of target {target!r} covers this source (rules: "
        f"{', '.join(prefix for prefix, _ in longest_first(rules))}); add its prefix under "
        f"remap: {target}: or leave the source out with source.pattern"
    )


def carried(rest: str, from_http: bool, to_http: bool) -> str:
    """The part of a path behind a prefix, as the other side of a remap rule spells names."""
    if from_http == to_http:
        return rest
    return quote(rest, safe=ICECHUNK_SAFE) if to_http else unquote(rest)


def file_name(name: str) -> str:
    """An array's name as a relative path that stays inside its folder, percent-encoded.

    >>> file_name("g/sst"), file_name("../a b")
    ('g/sst', '%2E%2E/a%20b')
    """
    parts = [quote(part, safe="") for part in name.split("/")]
    return "/".join(p.replace(".", "%2E") if set(p) == {"."} else p for p in parts)
