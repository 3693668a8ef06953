"""Chromium of Debian, headless, as a test drives it; installed where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PROGRAMS = ("chromium", "chromedriver")
# without those on background networking each start looks up hosts that a closed network refuses
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1",
)  # fmt: skip
INSTALL = """
exec 9>/run/byterefs-chromium.lock; flock 9
command -v chromium && command -v chromedriver && exit
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    chromium chromium-driver fonts-dejavu-core
"""


def install() -> None:
    """Have Chromium and its driver; skips where they are missing and this is not root on Debian."""
    if all(map(shutil.which, PROGRAMS)):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("Chromium is not installed, and only root on Debian can install it")
    done = subprocess.run(["bash", "-c", INSTALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"chromium cannot be installed: {done.stderr[-500:]}"


class Browser:
    """One window, and what a landing page in it shows."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.js: Callable[..., Any] = driver.execute_script

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """The viewport in CSS pixels, and what the person prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        prefers = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [prefers]})

    def open(self, url: str) -> None:
        """Load a page and wait until its map is drawn or a sentence says why not."""
        self.driver.get(url)
        self.settle()

    def settle(self, since: str | None = None, seconds: float = 15) -> None:
        """Wait until the map shows something else than ``since``, or says a sentence."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            drawn = self.drawn
            if (drawn and drawn != since) or self.says.endswith("."):
                return
            time.sleep(0.03)
        raise AssertionError(f"the map is still at {self.drawn!r}: {self.says!r} {self.log()}")

    @property
    def drawn(self) -> str | None:
        """The step and window that the canvas shows; None where it shows nothing."""
        return self.js("return document.getElementById('canvas').dataset.drawn ?? null")

    @property
    def says(self) -> str:
        """The sentence on the map; "" while it is drawn."""
        return str(self.text("says"))

    def text(self, id: str) -> str:
        """What an element says."""
        return str(self.js("return document.getElementById(arguments[0]).textContent", id)).strip()

    def log(self) -> list[str]:
        """Errors and warnings of the console since they were asked for last."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def pixels(self) -> np.ndarray:
        """The canvas as (rows, columns, RGBA), row 0 on top."""
        width, height, data = self.js(
            "const c = document.getElementById('canvas');"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "let s = ''; for (let i = 0; i < d.length; i += 8192) s += String.fromCharCode(...d.subarray(i, i + 8192));"
            "return [c.width, c.height, btoa(s)]"
        )
        return _bytes(data).reshape(height, width, 4)

    def ramp(self) -> tuple[np.ndarray, float, float]:
        """The 256 colours of the colour bar, and the values at its ends."""
        data = self.js(
            "const d = document.getElementById('ramp').getContext('2d').getImageData(0, 0, 256, 1).data;"
            "return btoa(String.fromCharCode.apply(null, d))"
        )
        ends = self.js(
            "const t = document.getElementById('barticks').children; return [t[0].textContent, t[4].textContent]"
        )
        return _bytes(data).reshape(256, 4), float(ends[0]), float(ends[1])

    def value_at(self, row: int, column: int) -> dict[str, str]:
        """What is told of a cell of the canvas when the pointer is over it."""
        self.js(
            """const c = document.getElementById('canvas'), b = c.getBoundingClientRect();
            c.dispatchEvent(new PointerEvent('pointermove', {
                clientX: b.left + (arguments[1] + .5) / c.width * b.width,
                clientY: b.top + (arguments[0] + .5) / c.height * b.height}))""",
            row, column,
        )  # fmt: skip
        return {
            **self.js("return {...document.getElementById('value').dataset}"),
            "words": self.text("value"),
        }

    def choose(self, name: str) -> None:
        """Choose another variable."""
        self.js(
            """document.getElementById('canvas').removeAttribute('data-drawn');
            document.getElementById('says').textContent = '';
            const s = document.getElementById('variable'); s.value = arguments[0];
            s.dispatchEvent(new Event('change'))""",
            name,
        )
        self.settle()

    def picture(self, path: Path) -> None:
        """A screenshot of the viewport."""
        self.driver.save_screenshot(str(path))


def _bytes(text: str) -> np.ndarray:
    import base64

    return np.frombuffer(base64.b64decode(text), "u1")


@contextmanager
def started() -> Iterator[Browser]:
    """A browser with an empty profile."""
    install()
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
