"""Units of CF time: what they count, from which instant, in which calendar."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import cftime
import numpy as np

from byterefs.errors import PlanError

SECONDS = {
    "nanosecond": Fraction(1, 1_000_000_000),
    "microsecond": Fraction(1, 1_000_000),
    "millisecond": Fraction(1, 1_000),
    "second": Fraction(1),
    "minute": Fraction(60),
    "hour": Fraction(3_600),
    "day": Fraction(86_400),
    "week": Fraction(604_800),
}
UNIT_NAMES = {
    **{name: unit for unit in SECONDS for name in (unit, unit + "s")},
    **{"ns": "nanosecond", "us": "microsecond", "microsec": "microsecond", "microsecs": "microsecond"},
    **{"ms": "millisecond", "msec": "millisecond", "msecs": "millisecond", "millisec": "millisecond"},
    **{"millisecs": "millisecond", "s": "second", "sec": "second", "secs": "second"},
    **{"min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "d": "day"},
}  # fmt: skip
"""CF's spellings of the units that have a fixed length; months and years have none"""
OF_CALENDARS = {
    ("360_day", "month"): 30,
    ("360_day", "months"): 30,
    ("noleap", "common_year"): 365,
    ("noleap", "common_years"): 365,
}
"""days of the longer units that cftime counts in one calendar only"""
CALENDARS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
"""CF's second names of calendars"""
SINCE = re.compile(r"\S\s+since\s+\S", re.IGNORECASE)
WRITTEN = re.compile(
    r"\s*(?P<unit>\S+)\s+since\s+(?P<year>[+-]?\d+)-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[T\s](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2}(?:\.\d*)?))?)?(?!\d)"
    r"\s?(?P<zone>.*?)",
    re.IGNORECASE,
)
"""what cftime reads: one character before the clock and one before the zone, else it passes over them"""
ZONE = re.compile(r"(?P<sign>[+-])(?P<hours>\d{2})(?::?(?P<minutes>\d{2}))?")
UTC = ("", "z", "utc", "gmt")
WAY_OUT = "build these sources as a dataset of their own, or leave them out with source.pattern"


def is_time(units: object) -> bool:
    """Whether ``units`` count from an instant: ``days since 1978-01-01``."""
    return isinstance(units, str) and SINCE.search(units) is not None


@dataclass(frozen=True)
class Units:
    """What a time coordinate counts in: ``days since 1978-01-01 12:00:00``, standard calendar."""

    units: str
    calendar: str

    @property
    def name(self) -> str:
        """The word for what is counted, in small letters."""
        return self.units.split()[0].lower()

    @property
    def fixed(self) -> bool:
        """Whether they count something of a fixed length from a date that cftime reads."""
        if self.name not in UNIT_NAMES:
            return False
        try:
            self.dates(np.zeros(1))
        except PlanError:
            return False
        return True

    def seconds(self, where: str) -> Fraction:
        """The length of one unit. Raises PlanError, naming ``where``, for months, years and unknown units."""
        if self.name in UNIT_NAMES:
            return SECONDS[UNIT_NAMES[self.name]]
        if (self.calendar, self.name) in OF_CALENDARS:
            return OF_CALENDARS[self.calendar, self.name] * SECONDS["day"]
        raise PlanError(
            f"{where}: units {self.units!r} have no fixed length and cannot be converted exactly; "
            f"build sources of other units as a dataset of their own"
        )

    def after(self, other: Units, where: str) -> Fraction:
        """Seconds from the instant that ``other`` counts from to the one that these do.

        Raises PlanError, naming ``where``, for a date that is none of the calendar, and for two zones of
        which one is written in a way that cftime passes over in silence (``-3``, ``EST``, a bare hour).
        """
        mine, theirs = self._written(where), other._written(where)
        zones = Fraction(0)
        if mine["zone"] != theirs["zone"]:
            zones = other._zone(theirs["zone"], where) - self._zone(mine["zone"], where)
        delta = self._day(mine, where) - other._day(theirs, where)
        fine = Fraction(mine["second"] or 0) - Fraction(theirs["second"] or 0)
        return Fraction(delta.days * 86_400 + delta.seconds) + fine + zones

    def from_instant(self, date: Any, where: str) -> Fraction:
        """Units from the instant that these count from to a date of cftime's, which is UTC."""
        written = self._written(where)
        delta = date - self._day(written, where)
        seconds = Fraction(delta.days * 86_400 + delta.seconds) + Fraction(
            delta.microseconds, 10**6
        )
        fine = Fraction(written["second"] or 0) - self._zone(written["zone"], where)
        return (seconds - fine) / self.seconds(where)

    def dates(self, values: Any) -> Any:
        """The instants of some values, as cftime tells them. Raises PlanError for units that it does not know."""
        word = UNIT_NAMES.get(self.name)
        text, numbers = self.units, np.asarray(values)
        if word == "nanosecond":  # cftime has neither these nor weeks
            text, numbers = self._counting("microseconds"), numbers // 1000
        elif word == "week":
            text, numbers = self._counting("days"), numbers * 7
        try:
            return cftime.num2date(numbers, text, self.calendar, only_use_cftime_datetimes=True)
        except (ValueError, OverflowError, TypeError) as error:  # TypeError: 'days since 20000101'
            raise PlanError(f"{self.units!r} is no time that cftime reads ({error})") from error

    def _counting(self, unit: str) -> str:
        """These units with another word for what is counted."""
        return f"{unit} {self.units.split(None, 1)[1]}"

    def _written(self, where: str) -> dict[str, str]:
        found = WRITTEN.fullmatch(self.units.rstrip())
        if found is None:
            raise PlanError(
                f"{where}: units {self.units!r} count from no date of the form 2000-01-31 or 2000-01-31 12:00:00 "
                f"and cannot be converted exactly; {WAY_OUT}"
            )
        return {k: (v or "").lower() for k, v in found.groupdict().items()}

    def _day(self, written: dict[str, str], where: str) -> Any:
        """The minute from which these count, without its zone."""
        numbers = [int(written[k] or 0) for k in ("year", "month", "day", "hour", "minute")]
        try:
            if Fraction(written["second"] or 0) >= 60:
                raise ValueError("a minute has 60 seconds")
            return cftime.datetime(*numbers, calendar=self.calendar)
        except ValueError as error:
            why = str(error).partition(" in cftime")[0]
            raise PlanError(
                f"{where}: {self.units!r} counts from no instant of the calendar {self.calendar!r} ({why}) "
                f"and cannot be converted exactly; {WAY_OUT}"
            ) from error

    def _zone(self, zone: str, where: str) -> Fraction:
        """Seconds by which the clock of a zone is ahead of UTC."""
        if zone.strip() in UTC:
            return Fraction(0)
        found = ZONE.fullmatch(zone)
        if found is None:
            raise PlanError(
                f"{where}: {self.units!r} ends in {zone!r}, which readers do not agree on, where other sources "
                f"count in another zone; {WAY_OUT}"
            )
        seconds = int(found["hours"]) * 3600 + int(found["minutes"] or 0) * 60
        return Fraction(-seconds if found["sign"] == "-" else seconds)
