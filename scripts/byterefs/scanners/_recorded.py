"""How a scan ends: arrays recorded one by one, refused by name or set aside, and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from byterefs.errors import ByteRefsError, ScanError
from byterefs.model import Source, SourceArray, SourceScan
from byterefs.scanners._common import LEAVE_OUT, Attributes, Seen, Unsupported

_aside: ContextVar[dict[str, str] | None] = ContextVar("aside", default=None)


@contextmanager
def setting_aside() -> Iterator[dict[str, str]]:
    """Arrays that cannot be recorded do not end the scan of their source in here: name -> why, and the way out."""
    found: dict[str, str] = {}
    token = _aside.set(found)
    try:
        yield found
    finally:
        _aside.reset(token)


def recorded(
    source: str, name: str, required: bool, make: Callable[[], SourceArray]
) -> SourceArray | None:
    """What ``make`` gives; of an array that cannot be recorded a ScanError if ``required``, else None.

    Within :func:`setting_aside` it is None too, and the reason is kept.
    """
    try:
        return make()
    except Unsupported as why:
        if required:
            refused(source, name, f"{why}; {why.out or LEAVE_OUT}", why)
    except ByteRefsError as error:
        refused(source, name, f"{error}; fetch the file again", error)
    return None


def refused(source: str, name: str, why: str, cause: Exception | None) -> None:
    """Raise the ScanError of an array, or within :func:`setting_aside` keep its reason."""
    found = _aside.get()
    if found is None:
        raise ScanError(f"{source}: {name}: {why}") from cause
    found[name] = why


def together(
    source: Source, seen: Seen, items: Mapping[str, SourceArray | None], root: Attributes
) -> SourceScan:
    """The scan of a source: what was recorded, by name, and the root attributes."""
    found = {name: item for name, item in sorted(items.items()) if item is not None}
    return SourceScan(seen.of(source), found, *root)
