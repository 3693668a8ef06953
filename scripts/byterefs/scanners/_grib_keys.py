"""What ecCodes says of one GRIB field: its variable, its place on the axes, its grid, its packing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from byterefs import grib
from byterefs.grib import Message

UNLEVELLED = ("surface", "meanSea", "entireAtmosphere", "atmosphere", "nominalTop", "tropopause")
"""types of level that have no level, whatever number a message gives"""
ROOT = ("edition", "centre", "centreDescription", "subCentre")
PRODUCT = (
    *("paramId", "shortName", "name", "units", "cfName", "cfVarName", "dataType", "typeOfLevel"),
    *("stepType", "NV", "totalNumber", "gridType", "gridDefinitionDescription", "numberOfPoints"),
)
GRID = (
    *("Nx", "Ny", "N", "J", "K", "M", "iScansNegatively", "jScansPositively"),
    *("jPointsAreConsecutive", "alternativeRowScanning", "uvRelativeToGrid", "shapeOfTheEarth"),
    *("latitudeOfFirstGridPointInDegrees", "longitudeOfFirstGridPointInDegrees"),
    *("latitudeOfLastGridPointInDegrees", "longitudeOfLastGridPointInDegrees"),
    *("iDirectionIncrementInDegrees", "jDirectionIncrementInDegrees", "DxInMetres", "DyInMetres"),
    *("LaDInDegrees", "LoVInDegrees", "Latin1InDegrees", "Latin2InDegrees", "orientationOfTheGridInDegrees"),
    *("latitudeOfSouthernPoleInDegrees", "longitudeOfSouthernPoleInDegrees", "angleOfRotationInDegrees"),
)  # fmt: skip
"""keys that become attributes ``GRIB_<key>``, as readers of GRIB in xarray know them"""
NOT_SAID = ("unknown", "~", "undef")
"""what ecCodes gives for a parameter that it does not know"""


@dataclass(frozen=True, slots=True)
class Product:
    """One field of a file."""

    message: Message
    field: int
    """which field of its message, from 0 on"""
    fields: int
    """how many its message holds"""
    head: bytes
    """the field as a message without data"""
    variable: str
    level_type: str
    level: float
    step_type: str
    special: str
    """which percentile, probability or statistic of an ensemble it is; empty for a plain field"""
    time: int
    """the reference time, seconds since 1970"""
    step: int
    """seconds from there to the end of the step"""
    number: int | None
    """the ensemble member"""
    grid_type: str
    grid: str
    """what tells this grid from another"""
    decoder: str
    dtype: str
    attrs: Mapping[str, Any]
    root: Mapping[str, Any]

    @property
    def levelled(self) -> bool:
        """Whether its level is a value that others of its kind may differ in."""
        return bool(self.level) and self.level_type not in UNLEVELLED

    @property
    def shown(self) -> str:
        """The field in words, for a refusal."""
        member = "" if self.number is None else f", number {self.number}"
        when = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return (
            f"{self.variable} at {self.level_type} {self.level:g}, time {when}, step {self.step} s "
            f"({self.step_type} {self.attrs.get('stepRange', '')}){member}, at byte {self.message.offset}"
        )


class Keys:
    """The keys of one field; ``get`` gives None for one that the field has not."""

    def __init__(self, head: bytes) -> None:
        self._ec = grib.eccodes()
        self._handle = self._ec.codes_new_from_message(head)

    def __enter__(self) -> Keys:
        return self

    def __exit__(self, *_: object) -> None:
        self._ec.codes_release(self._handle)

    def get(self, key: str, kind: type | None = None) -> Any:
        """The value of a key, as ecCodes types it or as ``kind``."""
        if not self._ec.codes_is_defined(self._handle, key):
            return None
        try:
            return self._ec.codes_get(self._handle, key, kind)
        except self._ec.CodesInternalError:
            # defined, and of no use in this field: the increments of a reduced grid
            return None

    def array(self, key: str) -> Any:
        """All values of a key; None for one that the field has not."""
        try:
            return self._ec.codes_get_array(self._handle, key)
        except self._ec.CodesInternalError:
            return None

    def seconds(self) -> int:
        """The end of the step in seconds; ValueError for months and years, which have no fixed length."""
        try:
            self._ec.codes_set(self._handle, "stepUnits", "s")
            return int(self._ec.codes_get(self._handle, "endStep", int))
        except self._ec.CodesInternalError as error:
            raise ValueError(f"a step in units that are no seconds ({error})") from error


def product(message: Message, head: bytes, field: int, fields: int) -> Product:
    """One field by its keys; ValueError where a key that decides its place is no such value."""
    with Keys(head) as keys:
        said = {key: keys.get(key) for key in (*PRODUCT, *GRID, "stepRange")}
        attrs = {k: v for k, v in said.items() if v is not None and v not in NOT_SAID}
        packing, grid = str(keys.get("packingType")), str(said["gridType"])
        double = packing == "grid_ieee" and keys.get("precision") == 2
        masked = bool(keys.get("bitmapPresent"))
        one = fields == 1 or (field == 0 and message.edition == 2)
        bits = int(keys.get("bitsPerValue", int) or 0)
        by = grib.decoder(message.edition, packing, grid, masked=masked, bits=bits)
        number = keys.get("number", int)
        return Product(
            message=message,
            field=field,
            fields=fields,
            head=head,
            variable=attrs.get("cfVarName") or unknown(keys),
            level_type=str(said["typeOfLevel"]),
            level=float(keys.get("level", float) or 0.0),
            step_type=str(said["stepType"]),
            special=special(keys),
            time=reference(keys),
            step=keys.seconds(),
            number=number if number or attrs.get("totalNumber") else None,
            grid_type=grid,
            grid=f"{grid} {keys.get('md5GridSection')} {said['numberOfPoints']}",
            decoder=by if one else grib.ECCODES,
            dtype="<f8" if double else "<f4",
            attrs=attrs,
            root={key: keys.get(key) for key in ROOT},
        )


def unknown(keys: Keys) -> str:
    """The name of a parameter that ecCodes does not know: by its numbers in WMO's tables."""
    if keys.get("edition") == 1:
        return f"unknown_{keys.get('table2Version')}_{keys.get('indicatorOfParameter')}"
    numbers = (keys.get(k) for k in ("discipline", "parameterCategory", "parameterNumber"))
    return "_".join(["unknown", *map(str, numbers)])


def special(keys: Keys) -> str:
    """What of an ensemble a field tells, in a word: ``p50``, ``prob10_1_10``, ``derived4``; else nothing."""
    percentile, kind = keys.get("percentileValue"), keys.get("probabilityType", int)
    if percentile is not None:
        return f"p{percentile}"
    if kind is not None:
        return "_".join([f"prob{kind}", limit(keys, "Lower"), limit(keys, "Upper")])
    derived = keys.get("derivedForecast", int)
    return "" if derived is None else f"derived{derived}"


def limit(keys: Keys, which: str) -> str:
    """A limit of a probability as its scaled value and, where there is one, the power of ten below."""
    scale = keys.get(f"scaleFactorOf{which}Limit", int)
    value = str(keys.get(f"scaledValueOf{which}Limit", int))
    return f"{value}e{-scale}" if scale else value


def reference(keys: Keys) -> int:
    """The reference time in seconds since 1970; ValueError for a date that is none."""
    date, clock = keys.get("dataDate", int), keys.get("dataTime", int)
    second = keys.get("second", int) or 0
    at = datetime(
        date // 10_000, date // 100 % 100, date % 100, clock // 100, clock % 100, tzinfo=UTC
    )
    return int(at.timestamp()) + second
