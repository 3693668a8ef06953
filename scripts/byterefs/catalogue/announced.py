"""What a publication is to the people that it is announced to: its address, its forms, how each is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byterefs import emitters, urls
from byterefs.emitters import Place
from byterefs.errors import RegisterError
from byterefs.receipts import read
from byterefs.view import View

KINDS: Mapping[str, str] = {
    "vrt": "mdim_vrt",
    "kerchunk": "kerchunk_parquet",
    "sqlite": "mdim_refs",
    "icechunk": "icechunk",
    "parquet": "parquet",
}
"""form -> its kind in sds"""
STAYS: Mapping[str, str] = {
    "vrt": "current.vrt",
    "kerchunk": "current.parq",
    "sqlite": "current.sqlite",
    "icechunk": "icechunk",
    "parquet": "current.parquet",
}
"""form -> the key that stays the same from version to version"""


@dataclass(frozen=True)
class Form:
    """A form as it is published."""

    form: str
    folder: str
    """its key: ``v/<version>/<form>``, or ``icechunk``"""
    href: str
    """address of its file, or of its folder with a slash at the end"""
    files: Mapping[str, Mapping[str, Any]]
    """relative path -> size in bytes and sha256"""
    dsn: str
    """the string that opens this very version"""
    current: str
    """the string that opens whatever is newest"""
    lines: Mapping[str, list[str]]
    """reader -> the lines that open it from anywhere"""

    @property
    def kind(self) -> str:
        """Its kind in sds."""
        return KINDS[self.form]

    @property
    def size(self) -> int:
        """Bytes of all of its files."""
        return sum(int(held["size"]) for held in self.files.values())


@dataclass(frozen=True)
class Publication:
    """One place where a version of a dataset's forms can be read."""

    name: str
    target: str
    version: str
    base: str
    """its address, without a slash at the end"""
    mirror_of: str | None
    forms: tuple[Form, ...]
    """sorted by name"""
    refused: Mapping[str, str]
    """form -> why it is not published"""

    def form(self, name: str) -> Form | None:
        """A form by name; None where it is not published."""
        return next((f for f in self.forms if f.form == name), None)


def publication(
    view: View, entry: Mapping[str, Any], synced: Path, emit: Mapping[str, Any]
) -> Publication:
    """What the receipt of a sync left, and how it is opened.

    ``entry`` is the config's entry of ``sync``, ``emit`` its section of that name. Raises RegisterError
    for a rehearsal, which left nothing.
    """
    done = read(synced)
    if done.get("dry_run"):
        raise RegisterError(
            f"{synced}: this sync was a rehearsal and published nothing; remove sync.dry_run to announce it"
        )
    version, base, keys = done["version"], address(entry), done["keys"]
    folders = {form: f"v/{version}/{form}" for form in KINDS} | {"icechunk": "icechunk"}
    forms = []
    for form, folder in sorted(folders.items()):
        files = {
            k[len(folder) + 1 :]: held for k, held in keys.items() if k.startswith(f"{folder}/")
        }
        if not files or form not in emit:
            continue
        place = Place(f"{base}/{folder}")
        lines = emitters.load(form).opening(
            view, target=done["target"], options=emit[form] or {}, place=place
        )
        main = {"vrt": f"{view.dataset}.vrt", "sqlite": "store.sqlite"}.get(form)
        href = place.url(main) if main else place.url() + "/"
        dsn = string(view, form, files, place)
        current = string(view, form, files, Place(f"{base}/{STAYS[form]}"), stays=True)
        forms.append(Form(form, folder, href, files, dsn, current, lines))
    return Publication(
        entry["name"],
        done["target"],
        version,
        base,
        done.get("mirror_of"),
        tuple(forms),
        done["refused"],
    )


def address(entry: Mapping[str, Any]) -> str:
    """Where readers reach a publication: ``url``, the bucket at its endpoint, or the place itself."""
    to = str(entry["to"]).rstrip("/")
    if entry.get("url"):
        return str(entry["url"]).rstrip("/")
    if to.startswith("s3://") and entry.get("endpoint"):
        return f"{str(entry['endpoint']).rstrip('/')}/{to.removeprefix('s3://')}"
    return to.removeprefix("file://")


def string(
    view: View, form: str, files: Mapping[str, Any], place: Place, *, stays: bool = False
) -> str:
    """The one string that opens a form: GDAL's for what GDAL opens, a URL for the others.

    ``stays``: the place is the name that stays, which for a form of one file is the file itself.
    """
    match form:
        case "vrt":
            return place.gdal("" if stays else f"{view.dataset}.vrt")
        case "sqlite":
            return place.gdal("" if stays else "store.sqlite")
        case "kerchunk":
            return f'ZARR:"/vsikerchunk_parquet_ref/{{{place.gdal()}}}"'
        case "icechunk":
            return place.url() + "/"
        case _:
            shown = f"refs_{urls.file_name(view.shown)}.parquet"
            return place.url(shown) if shown in files else place.url() + "/"
