"""Files over HTTP as a public archive serves them: byte ranges, and readable by pages of other sites."""

from __future__ import annotations

import os
import re
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


class Handler(SimpleHTTPRequestHandler):
    """``http.server``'s handler with single byte ranges and CORS, both of which it lacks."""

    protocol_version = "HTTP/1.1"
    cors = True
    ranges = True

    def send_head(self) -> BinaryIO | None:
        """Headers of a whole file, or of the range that the request asks for."""
        asked = RANGE.match(self.headers.get("Range", "")) if self.ranges else None
        path = Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            return super().send_head()
        size = path.stat().st_size
        first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
        if first > last:
            self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return None
        file = path.open("rb")
        file.seek(first)
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        return cast(BinaryIO, Part(file, last - first + 1))

    def end_headers(self) -> None:
        """Permit pages of other sites to read."""
        if self.cors:
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Expose-Headers", "Content-Range")
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def do_OPTIONS(self) -> None:
        """Answer what a browser asks before a request with a header of its own."""
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Headers", "Range")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Part:
    """The first bytes from where a file stands, as ``http.server`` copies files."""

    def __init__(self, file: BufferedReader, left: int) -> None:
        self.file, self.left = file, left

    def read(self, n: int = -1) -> bytes:
        """At most ``n`` of the bytes that are left."""
        data = self.file.read(self.left if n < 0 else min(n, self.left))
        self.left -= len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Server(ThreadingHTTPServer):
    """A folder on loopback; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0, handler: type[Handler] = Handler) -> None:
        super().__init__(("127.0.0.1", port), partial(handler, directory=os.fspath(folder)))

    @property
    def address(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.server_port}"
