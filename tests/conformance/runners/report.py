"""What every runner in Python prints: one line of JSON, reader and form, and per case ``ok`` or what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Read = Callable[[str, str], Any]
"""dataset and array -> stored values"""


def main(
    reader: str, form: str, read: Read, *, only: Callable[[dict[str, Any]], str] = lambda _: ""
) -> None:
    """Read every case of the fixture and print the report; ``only`` says why a case is left out."""
    cases = json.loads((fixture() / "expected.json").read_text())["cases"]
    found = {}
    for name, case in cases.items():
        found[name] = only(case) or compared(case, read)
    print(json.dumps({"reader": reader, "form": form, "cases": found}))


def fixture() -> Path:
    """The folder that the command line names."""
    return Path(sys.argv[1])


def form(dataset: str, name: str, target: str = "access") -> Path:
    """The folder of one form."""
    return fixture() / "forms" / target / dataset / name


def compared(case: dict[str, Any], read: Read) -> str:
    """``ok``, where and how the values differ, or why there are none."""
    try:
        values = np.asarray(read(case["dataset"], case["array"]))
    except Exception as error:
        return f"not read: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if list(values.shape) != case["shape"]:
        return f"differs: shape {list(values.shape)}, not {case['shape']}"
    for i, (got, wanted) in enumerate(zip(spelled(values), case["values"], strict=True)):
        if got != wanted:
            return f"differs: element {i} is {got}, not {wanted}"
    return "ok"


def spelled(values: np.ndarray) -> list[Any]:
    """Values as the fixture spells them."""
    if values.dtype.kind == "f":
        return ["NaN" if np.isnan(v) else float(v) for v in values.ravel()]
    return [str(v) if values.dtype.itemsize == 8 else v for v in values.ravel().tolist()]
