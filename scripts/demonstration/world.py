"""A plausible ocean on a 1 degree grid: the same day gives the same numbers everywhere."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

Field = NDArray[np.float64]

LAT = np.arange(-89.5, 90, dtype=np.float32)
LON = np.arange(0.5, 360, dtype=np.float32)
EPOCH = date(1978, 1, 1)

# Coasts by hand, (lon, lat) in degrees: enough to be known again at 1 degree.
LAND = {
    "North America": "-168 66 -156 71 -128 70 -110 68 -95 69 -82 68 -78 62 -64 60 -56 52 -65 49 -60 46 -70 43 -75 38 -81 31 -80 25 -83 29 -90 29.5 -97 27 -97 20 -90 18.5 -87 21 -88 16 -83 15 -83 10 -78 8.5 -81 7.5 -86 12 -95 16 -105 20 -110 24 -117 32 -124 40 -124 48 -133 56 -145 60 -152 58 -164 54 -158 58 -166 62",
    "Baffin Island": "-85 73 -72 71 -62 66 -68 62 -75 65 -82 70",
    "Arctic islands": "-125 74 -100 71 -80 76 -62 82 -75 83 -95 81 -120 77",
    "Greenland": "-73 78 -60 82 -33 83.5 -18 80 -20 73 -25 70 -40 65 -43 60 -50 62 -54 68 -58 75",
    "South America": "-77 8 -72 12 -62 10.5 -52 5 -50 0 -44 -2.5 -35 -6 -39 -13 -40 -20 -48 -26 -53 -34 -58 -38 -62 -40 -65 -45 -68 -52 -66 -55 -72 -53 -75 -47 -73 -38 -71 -30 -70 -18 -76 -14 -81 -6 -80 -1 -78 3",
    "Africa": "-6 35.5 10 37 11 33.5 20 31 32 31 35 28 37 21 43 12 51 12 48 5 41 -2 39 -8 40 -15 35 -20 33 -26 28 -33 20 -35 17 -29 12 -17 13 -6 9 1 9 4 4 6.4 -8 4.5 -13 8.5 -17 14.5 -16 21 -10 29",
    "Madagascar": "49 -12.5 50 -16 47 -25 44 -23 44 -17",
    "Eurasia": "-9 37 -9 43 -2 43.5 -1 46 -5 48.5 2 51 8 54 8 57 10 57.5 11 54 19 54.5 21 57 24 59 30 60 35 65 40 64.5 44 68 60 69 68 73 80 73 98 76 105 77.5 113 74 130 71 140 72.5 160 70 180 69 180 65 178 62.5 165 60 163 56 157 51 156 57 160 61 142 59 135 54.5 141 52 140 48 132 43 129 41 129.5 36 126.5 34.5 126 38 121 39.5 118 39 122 37 119 35 122 31 121 28 117 23.5 110 21 106 20 109 13 105 9 101 13 100 9 103.5 1.5 101 3 98 9 98 16 94 16 91 22 87 21 80 15 80 11 77.5 8 73 18 72 21 67 25 57 25.5 50 30 48 30 51 24.5 56 24.5 59.5 22.5 55 17 45 13 43 13 39 21 34.5 28 35 32 36 36 28 36.5 26.5 40 23 40 23 37 20 40 19 42 13.5 45.5 16 41 18 40 16 38 12 42 8 44 3 43 0 39 -2 37 -5 36",
    "Scandinavia": "5 59 8 58 11 59 13 55.5 17 58 18 60 17 62 22 65.5 25 65 22 61 28 60 35 64 41 67 33 69.5 26 71 18 69.5 12 65 5 62",
    "Chukotka": "-180 69 -170 66 -173 64 -180 65",
    "Britain": "-5 50 1 51 0 54 -3 58.5 -6 57 -3 54.5",
    "Ireland": "-10 52 -6 52.3 -6 55 -9 54",
    "Iceland": "-24 65.5 -22 64 -18 63.4 -14 65 -17 66.3",
    "Svalbard": "11 79 20 80.5 27 80 17 77",
    "Novaya Zemlya": "52 71 56 75 68 77 60 72",
    "Japan": "130 31.5 136 33.5 140.5 35.5 142 39.5 145 43.5 141.5 45.5 140 41 136.5 37 131 34.5",
    "Philippines": "120 18.5 122 18 126 7 122 7 121 13",
    "Sumatra": "95 5.5 99 3 104 -2 106 -6 102 -4.5 98 1.5",
    "Java": "105 -6.3 114 -7 115 -8.7 106 -7.7",
    "Borneo": "109 1.5 117 7 119 5 117.5 0 116 -4 110 -3",
    "Sulawesi": "119 -5 120 1 125 1.5 121 -0.5 122 -5",
    "New Guinea": "131 -1 138 -1.8 147 -6 151 -10.5 143 -9 138 -8 133 -4",
    "Australia": "114 -22 122 -18 129 -15 132 -11.5 136.5 -12 136 -15 140.5 -17.5 142.5 -11 146 -19 153 -25 153 -31 150 -37.5 144 -38.5 138 -35 131 -31.5 124 -33.5 115.5 -34.5",
    "Tasmania": "145 -40.8 148.4 -40.8 147.6 -43.6 146 -43.6",
    "New Zealand north": "173 -35 178.5 -38 175.5 -41.6 174 -39",
    "New Zealand south": "172.5 -40.6 174.3 -42 169.5 -46.8 166.5 -46",
    "Cuba": "-84.5 22 -80 23.2 -74.5 20.2 -78 20.3",
    "Hispaniola": "-74 20 -68.5 18.8 -74 18",
    "Antarctica": "-180 -90 -180 -78 -150 -77 -130 -74 -100 -73 -75 -72 -65 -66 -57 -63.5 -61 -70 -60 -75 -35 -78 -20 -73 0 -70 30 -69 50 -67 70 -68.5 90 -66.5 130 -66.5 150 -68.5 170 -72 165 -78 180 -78 180 -90",
}
SEAS = [
    (-85, 59, 8, 5),
    (35, 43, 6, 2),
    (51, 42, 2.5, 5),
]  # lon, lat, radii: Hudson, Black, Caspian

# What sets an ocean apart from its latitude: lon, lat, radius east, radius north (degrees), Celsius.
REGIONS = [
    (150, 4, 45, 14, 1.4),  # warm pool
    (258, 0, 38, 3.5, -4.0),  # cold tongue
    (279, -15, 9, 14, -4.5),  # Peru
    (9, -22, 9, 11, -4.0),  # Benguela
    (236, 35, 8, 9, -3.5),  # California
    (342, 22, 8, 9, -3.0),  # Canaries
    (294, 37, 14, 5, 4.0),  # Gulf Stream
    (318, 45, 16, 6, 3.5),
    (352, 62, 26, 10, 5.5),  # its drift
    (308, 51, 9, 7, -4.0),  # Labrador
    (145, 36, 16, 5, 3.0),  # Kuroshio
    (158, 52, 16, 7, -2.5),  # Oyashio
    (32, -34, 12, 5, 2.5),  # Agulhas
    (62, 14, 10, 8, -1.5),  # Arabian upwelling
]


class Ocean(NamedTuple):
    """One day, (lat, lon); NaN on land and, for ``ice``, on open water. Celsius and fractions of 1."""

    sst: Field
    anom: Field
    err: Field
    ice: Field


def ocean(day: date, *, preliminary: bool = False) -> Ocean:
    """The fields of a day; a preliminary analysis is a little rougher and less sure of itself."""
    t = (day - EPOCH).days
    eddies = noise(1, 5, 14, t, 0.06) * roughness()
    slow = noise(2, 30, 100, t, 0.02)
    anom = 0.8 * slow + eddies + 1.6 * bump(215 + 0.4 * (t % 90), 1, 30, 5)
    if preliminary:
        anom = anom + 0.15 * noise(3, 4, 10, t, 0)
    mean = climate()
    ice = np.clip((0.2 - mean - 0.3 * slow) / 1.3, 0, 1)
    sst = np.maximum(mean + anom, -1.8)
    err = 0.12 + 0.1 * roughness() + 0.25 * ice + 0.02 * slow
    wet = np.where(land(), np.nan, 1.0)
    return Ocean(
        sst=sst * wet,
        anom=(sst - np.maximum(mean, -1.8)) * wet,
        err=err * wet * (1.5 if preliminary else 1),
        ice=np.where(ice > 0.15, ice, np.nan) * wet,
    )


@cache
def land() -> NDArray[np.bool_]:
    """Where there is no ocean, (lat, lon)."""
    lon, lat = np.meshgrid((LON + 180) % 360 - 180, LAT)
    points = np.column_stack([lon.ravel(), lat.ravel()])
    dry = np.zeros(lon.shape, bool)
    for outline in LAND.values():
        corners = np.array(outline.split(), float).reshape(-1, 2)
        dry |= Outline(corners).contains_points(points).reshape(lon.shape)
    for x, y, east, north in SEAS:
        dry &= ((lon - x) / east) ** 2 + ((lat - y) / north) ** 2 > 1
    return dry


@cache
def climate() -> Field:
    """The mean of the season: warm near the equator, with currents and upwelling on top."""
    mean = np.repeat(
        31 * np.exp(-((np.abs(LAT - 4.0) / 46) ** 2.4))[:, None] - 1.9, LON.size, axis=1
    )
    return mean + sum(size * bump(x, y, east, north) for x, y, east, north, size in REGIONS)


@cache
def roughness() -> Field:
    """How strong eddies are: most in the western boundary currents and around Antarctica."""
    circumpolar = np.exp(-(((LAT + 47) / 8.0) ** 2))[:, None]
    currents = sum(
        bump(x, y, east, 6) for x, y, east in [(300, 39, 20), (150, 37, 20), (25, -39, 18)]
    )
    return 0.25 + 0.7 * circumpolar + 1.6 * currents


def bump(lon: float, lat: float, east: float, north: float) -> Field:
    """A bell of height 1 around a point, (lat, lon); longitude wraps."""
    away = (LON - lon + 180) % 360 - 180
    return np.exp(-((LAT[:, None] - lat) ** 2) / north**2 - away[None, :] ** 2 / east**2)


@cache
def spectrum(seed: int, short: float, long: float) -> tuple[NDArray[Any], Field]:
    """Random waves between two wave lengths (degrees), and their wave numbers eastward."""
    north = np.abs(np.fft.fftfreq(LAT.size))[:, None]
    east = np.fft.rfftfreq(LON.size)[None, :]
    number = np.hypot(north, east)
    band = (number > 1 / long) & (number < 1 / short)
    phase = np.random.default_rng(seed).uniform(0, 2 * np.pi, number.shape)
    waves = band * np.exp(1j * phase)
    return waves / np.fft.irfft2(waves, (LAT.size, LON.size)).std(), east


def noise(seed: int, short: float, long: float, t: int, speed: float) -> Field:
    """Waves of unit variance that have drifted west for ``t`` days at ``speed`` degrees a day."""
    waves, east = spectrum(seed, short, long)
    return np.fft.irfft2(waves * np.exp(2j * np.pi * east * speed * t), (LAT.size, LON.size))
