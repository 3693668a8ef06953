"""GDAL's names of sources, with GDAL told how each is asked for: retries over HTTP, access to a bucket."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from osgeo import gdal

from byterefs import urls

HTTP = {
    "GDAL_HTTP_MAX_RETRY": "5",
    "GDAL_HTTP_RETRY_DELAY": "0.3",
    "GDAL_HTTP_RETRY_CODES": "429,500,502,503,504",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "CPL_VSIL_CURL_USE_HEAD": "NO",
}
"""for names below /vsicurl/ and /vsis3/; without the fourth GDAL lists the folder of each file it opens"""


def name(source: str) -> str:
    """The name under which GDAL opens a source."""
    tell([source])
    return urls.to_gdal(source)


def tell(sources: Iterable[str]) -> None:
    """Let GDAL reach sources that a VRT names; nothing is done for local ones."""
    for source in sources:
        if source.startswith(("/vsis3/", "s3://")):
            from byterefs.access import buckets

            _bucket(buckets.split(source)[0], buckets.current())
        elif source.startswith(("/vsicurl", "http://", "https://")):
            _options("/vsicurl/", ())


@cache
def _bucket(bucket: str, access: tuple[str | None, ...]) -> None:
    from byterefs.access import buckets

    found = buckets.gdal_options(buckets.Access(*access))  # type: ignore[arg-type]
    # no slash at the end: GDAL also asks for the bucket itself, and then for keys of the machine's cloud
    _options(f"/vsis3/{bucket}", tuple(sorted(found.items())))


@cache
def _options(prefix: str, more: tuple[tuple[str, str], ...]) -> None:
    # GDAL reads some of these without a name at hand
    for key, value in HTTP.items():
        gdal.SetConfigOption(key, value)
    for key, value in more:
        gdal.SetPathSpecificOption(prefix, key, value)


def forget() -> None:
    """Drop what GDAL keeps of remote files, so that a new open sees them as they are now."""
    gdal.VSICurlClearCache()
