"""The lines by which R's stars reads the newest step from a VRT, and which arrays R gets from it.

Measured with Debian's stars 0.6-0, sf 1.0-9 and GDAL 3.6: ``read_mdim`` stops at any axis whose units are
degrees; sf knows no path of an array, and where a file has groups it opens the first one, innermost, and nothing
else; its arrays come in R's order under axes in C's; 64-bit integers come as doubles. So the lines use what is
below ``read_mdim``, and give sf the VRT's text without the groups that are not meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from byterefs.axis import time_units
from byterefs.emitters import Place
from byterefs.model import Array

Arrays = Mapping[str, Array]
"""every array of the VRT by name"""

ONLY = (
    'row <- seq_along(text); at <- grep("^    </?Group", text)',
    "only <- function(group) {  # sf opens the first group of a file and nothing else: leave out the others",
    '  own <- which(text == paste0("    <Group name=\\"", group, "\\">"))',
    "  own <- if (length(own)) own:min(at[at > own])",
    '  paste(text[row < at[1] | row > max(at) | row %in% own], collapse = "\\n")',
    "}",
)
"""R: the text of a VRT with one group at the root, or none"""


def coverage(arrays: Arrays) -> dict[str, bool | str]:
    """Array -> True, or why R does not get it from the VRT."""
    return {name: refusal(arrays, name) or True for name in arrays}


def refusal(arrays: Arrays, name: str) -> str | None:
    """Why R does not get an array from the VRT, as part of a sentence; None where it does."""
    if arrays[name].dtype[1:] in ("i8", "u8"):
        return (
            "sf gives 64-bit integers as doubles, exact up to 2^53; the form sqlite has their bytes"
        )
    group = group_of(name)
    below = any(group_of(other).startswith(f"{group}/") for other in arrays)
    if group and (below or "/" in group or quoteattr(group) != f'"{group}"'):
        return "sf opens the first group of a file, innermost, and not this one; the form sqlite has it"
    return None


def group_of(name: str) -> str:
    """The group of an array; "" is the root."""
    return name.rpartition("/")[0]


def own_name(name: str) -> str:
    """An array's name without its groups."""
    return name.rpartition("/")[2]


def lines(arrays: Arrays, shown: str, file: str, place: Place) -> list[str]:
    """R for the last step of an array as a stars object with its coordinates; none where R does not get it."""
    array, name = arrays[shown], text(own_name(shown))
    if refusal(arrays, shown) or len(array.dims) < 2 or 0 in array.shape:
        return []
    steps = {d: coordinate(arrays, shown, d) for d in array.dims}
    grouped = any(group_of(other) for other in arrays)
    axes = [axis(d, i, steps[d], grouped) for i, d in reversed([*enumerate(array.dims, 1)])]
    count = [1, *array.shape[1:]]
    raster = ", ".join(text(d) for d in array.dims[:-3:-1])
    # coordinates of the map are cell centres; stars takes no centre of a single cell
    middles = ", ".join(str(i < 2 and n > 1).upper() for i, n in enumerate(count[::-1]))
    return [
        "library(stars)",
        *(groups(file, place) if grouped else [f"vrt <- {text(place.gdal(file))}"]),
        f"from <- c({', '.join(map(str, [array.shape[0] - 1, *(0 for _ in count[1:])]))}); "
        f"n <- c({', '.join(map(str, count))})  # {', '.join(array.dims)}: the last step",
        "axis <- function(vrt, name, i) as.vector(sf::gdal_read_mdim(vrt, name)$array_list[[1]])[from[i] + seq_len(n[i])]",
        f"axes <- list({', '.join(axes)})",
        *(dates(d, found) for d, found in steps.items() if found and is_time(found)),
        f"values <- sf::gdal_read_mdim({where(shown, grouped)}, {name}, offset = from, count = n)$array_list[[1]]",
        f"shown <- st_as_stars(list({name} = array(values, lengths(axes))),",
        f"  dimensions = do.call(st_dimensions, c(axes, list(.raster = c({raster}), cell_midpoints = c({middles})))))",
    ]


def groups(file: str, place: Place) -> list[str]:
    """What makes the function ``only``."""
    name = place.https(file) if place.remote else place.url(file)
    return [f"text <- readLines({text(name)})", *ONLY]


def where(name: str, grouped: bool) -> str:
    """The R expression of the VRT in which an array is found by its own name."""
    return f"only({text(group_of(name))})" if grouped else "vrt"


def coordinate(arrays: Arrays, shown: str, dim: str) -> Array | None:
    """The numbers along a dimension, from the array's group or one further out; None where R gets none."""
    group = shown
    while group:
        group = group_of(group)
        name = f"{group}/{dim}" if group else dim
        if name in arrays:
            found = arrays[name]
            numeric = found.dims == (dim,) and found.dtype[1] in "iuf"
            return found if numeric and not refusal(arrays, name) else None
    return None


def axis(dim: str, number: int, found: Array | None, grouped: bool) -> str:
    """An entry of the list of axes; a count of elements where there are no coordinates."""
    if found is None:
        return f"{text(dim)} = from[{number}] + seq_len(n[{number}])"
    return f"{text(dim)} = axis({where(found.array, grouped)}, {text(dim)}, {number})"


def is_time(found: Array) -> bool:
    """Whether R turns a coordinate's numbers into dates: the standard calendar, units of fixed length."""
    units = time_units(found.attrs)
    if units is None or not units.fixed:
        return False
    # udunits is Julian before 1582, where the proleptic calendar is not
    return units.calendar == "standard" or (
        units.calendar == "proleptic_gregorian" and units.dates(0).year > 1582
    )


def dates(dim: str, found: Array) -> str:
    """The line that turns an axis into dates."""
    units = text(str(found.attrs["units"]))
    return (
        f"axes[[{text(dim)}]] <- as.POSIXct(units::set_units(axes[[{text(dim)}]], {units}, "
        f'mode = "standard"))'
    )


def text(value: str) -> str:
    """An R string; R reads JSON's escapes."""
    return json.dumps(value, ensure_ascii=False)
