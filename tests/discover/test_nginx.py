"""Provider `http` and byte ranges on a real nginx, Debian's, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import debian
import serving
from byterefs.access import ranges
from byterefs.discover import http

NAMES = ["2020/day 1.nc", "2020/day+2.nc", "2021/é#4%.nc", f"2021/{'long' * 20}.nc", "2021/a&b;c=d.nc", "x.txt"]  # fmt: skip
WHEN = 1_598_963_645  # 2020-09-01 12:34:05 UTC
CONF = """
user root; pid {root}/pid; error_log {root}/error.log;
events {{}}
http {{
  access_log off; default_type application/octet-stream;
  server {{ listen 127.0.0.1:{port}; location / {{ root {root}/served; autoindex on; }} }}
}}
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An address, and the folder that nginx serves there."""
    if shutil.which("nginx") is None:
        if os.geteuid():
            pytest.skip("there is no nginx, and only root can install it")
        debian.install("nginx", ["nginx-light"])
    root, port = tmp_path_factory.mktemp("nginx"), serving.free_port()
    (root / "nginx.conf").write_text(CONF.format(root=root, port=port))
    for path in (root / "served/archive" / name for name in NAMES):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100_000))
        os.utime(path, (WHEN, WHEN))
    command = ["nginx", "-e", f"{root}/error.log", "-c", f"{root}/nginx.conf", "-g", "daemon off;"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (root / "pid").exists() and server.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}", root / "served"
    server.terminate()
    server.wait()


def test_its_index_pages_give_every_file_with_size_and_date_and_each_is_read_by_ranges(
    archive: tuple[str, Path],
) -> None:
    url, served = archive
    found = list(http.list({"url": f"{url}/archive", "pattern": r"\.nc$"}))
    assert len(found) == len(NAMES) - 1
    own = {name: (served / "archive" / name).read_bytes() for name in NAMES}
    read = {}
    for source in found:
        assert (source.size, source.mtime_ns) == (100_000, (WHEN - WHEN % 60) * 10**9)
        with ranges.open(source.source) as opened:
            read[source.source] = opened.read_many([(5, 10), (99_000, 1000)])
    spans = sorted([data[5:15], data[99_000:]] for name, data in own.items() if name != "x.txt")
    assert sorted(read.values()) == spans
