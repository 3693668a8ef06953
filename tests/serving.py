"""Servers on loopback that tests read from and publish to: a web server with ranges, and an S3 server.

``Web`` is what nginx and Apache do with a folder (index pages, ranges, HEAD), written here so that it can
also do what servers should not: see ``Web.faults``. ``S3`` is SeaweedFS, one process per test session, as
``make s3-demo`` starts it.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from demonstration.seaweed import KEY, S3, SECRET, client, free_port

__all__ = ["KEY", "S3", "SECRET", "Web", "client", "free_port", "web"]

Fault = Callable[["Handler", int], bool]
"""Given the handler and how often its path was asked for before: True if it answered itself."""


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of files below a folder, with single ranges, ETag and Last-Modified."""

    protocol_version = "HTTP/1.1"
    web: Web

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.serve()

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.web.lock:
            before = self.web.asked[path]
            self.web.asked[path] += 1
            self.web.requests.append((self.command, self.path, self.headers.get("Range")))
        fault = self.web.faults.get(path) or self.web.faults.get("*")
        if fault and fault(self, before):
            return
        file = self.web.root / path.lstrip("/")
        if file.is_dir():
            self.whole(self.web.index(file, path).encode(), "text/html; charset=utf-8")
        elif file.is_file():
            self.file(file)
        else:
            self.whole(b"<html><body>404 Not Found</body></html>", "text/html", 404)

    def whole(self, body: bytes, kind: str, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.write(body)

    def file(self, file: Path) -> None:
        stat = file.stat()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        first, last = (int(asked[1]), int(asked[2])) if asked else (0, stat.st_size - 1)
        if asked and first >= stat.st_size:
            self.whole(b"", "text/plain", 416, Content_Range=f"bytes */{stat.st_size}")
            return
        last = min(last, stat.st_size - 1)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{stat.st_size}")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", formatdate(stat.st_mtime, usegmt=True))
        self.send_header("ETag", f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"')
        self.end_headers()
        if self.command == "GET":
            with file.open("rb") as f:
                f.seek(first)
                self.write(f.read(last - first + 1))

    def write(self, data: bytes) -> None:
        with self.web.lock:
            self.web.sent += len(data)
        try:
            self.wfile.write(data)
        except OSError:
            self.close_connection = True


class Web:
    """A folder on a web server; ``url`` is where, ``faults`` maps a path (or ``*``) to what goes wrong."""

    def __init__(self, root: Path, *, style: str = "nginx") -> None:
        self.root, self.style = root, style
        self.faults: dict[str, Fault] = {}
        self.lock = threading.Lock()
        self.forget()
        handler = type("Bound", (Handler,), {"web": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        # a client that hangs up is no error of the test
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def forget(self) -> None:
        """Count from here on."""
        self.asked: Counter[str] = Counter()
        self.requests: list[tuple[str, str, str | None]] = []
        self.sent = 0

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def index(self, folder: Path, path: str) -> str:
        """The page that nginx's autoindex or Apache's mod_autoindex makes of a folder."""
        names = sorted(p.name + "/" * p.is_dir() for p in folder.iterdir())
        rows = {name: (folder / name).stat() for name in names}
        return (nginx if self.style == "nginx" else apache)(path, rows)


def nginx(path: str, rows: Mapping[str, os.stat_result]) -> str:
    lines = [
        f'<a href="{quote(name)}">{escape(name if len(name) <= 50 else name[:47] + "..>")}</a>'
        f"{' ' * max(1, 51 - len(name))}{datetime.fromtimestamp(s.st_mtime, UTC):%d-%b-%Y %H:%M}"
        f"{'-' if name.endswith('/') else s.st_size:>20}"
        for name, s in rows.items()
    ]
    head = f"<html>\r\n<head><title>Index of {path}</title></head>\r\n<body>\r\n<h1>Index of {path}</h1><hr>"
    body = "".join(f"{line}\r\n" for line in lines)
    return f'{head}<pre><a href="../">../</a>\r\n{body}</pre><hr></body>\r\n</html>\r\n'


def apache(path: str, rows: Mapping[str, os.stat_result]) -> str:
    cells = "".join(
        f'<tr><td valign="top"><img src="/icons/unknown.gif" alt="[   ]"></td>'
        f'<td><a href="{quote(name)}">{escape(name)}</a></td>'
        f'<td align="right">{datetime.fromtimestamp(s.st_mtime, UTC):%Y-%m-%d %H:%M}  </td>'
        f'<td align="right">{"  - " if name.endswith("/") else human(s.st_size)}</td><td>&nbsp;</td></tr>\n'
        for name, s in rows.items()
    )
    return (
        f'<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">\n<html>\n <head>\n  <title>Index of {path}</title>\n'
        f" </head>\n <body>\n<h1>Index of {path}</h1>\n  <table>\n"
        '   <tr><th valign="top"><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th>'
        '<th><a href="?C=M;O=A">Last modified</a></th><th><a href="?C=S;O=A">Size</a></th>'
        '<th><a href="?C=D;O=A">Description</a></th></tr>\n   <tr><th colspan="5"><hr></th></tr>\n'
        '<tr><td valign="top"><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/">Parent Directory</a>'
        '</td><td>&nbsp;</td><td align="right">  - </td><td>&nbsp;</td></tr>\n'
        f'{cells}   <tr><th colspan="5"><hr></th></tr>\n</table>\n</body></html>\n'
    )


def human(size: int) -> str:
    """A size as Apache rounds it."""
    if size < 1024:
        return f"{size} "
    for unit in "KMGT":
        size_in = size / 1024 ** ("KMGT".index(unit) + 1)
        if size_in < 9.95:
            return f"{size_in:.1f}{unit}"
        if size_in < 1000:
            return f"{size_in:.0f}{unit}"
    raise AssertionError(size)


@contextmanager
def web(root: Path, *, style: str = "nginx") -> Iterator[Web]:
    """A web server for the length of the block."""
    found = Web(root, style=style)
    try:
        yield found
    finally:
        found.close()


# --- what servers should not do --------------------------------------------------------------------


def first(times: int, fault: Fault) -> Fault:
    """A fault that passes after so many requests for one path."""
    return lambda handler, before: before < times and fault(handler, before)


def status(code: int, **headers: str) -> Fault:
    def answer(handler: Handler, _: int) -> bool:
        handler.whole(b"no", "text/plain", code, **headers)
        return True

    return answer


def page(handler: Handler, _: int) -> bool:
    """A web page with status 200 where a file was asked for."""
    handler.whole(b"<html><body>Please log in</body></html>", "text/html")
    return True


def no_ranges(handler: Handler, _: int) -> bool:
    """The whole file, whatever range was asked for."""
    del handler.headers["Range"]
    return False


def short(handler: Handler, _: int) -> bool:
    """Half of the bytes that Content-Length promises, then the end of the connection."""
    write, handler.close_connection = handler.write, True
    handler.write = lambda data: write(data[: len(data) // 2])  # type: ignore[method-assign]
    return False


def wrong_length(handler: Handler, _: int) -> bool:
    """A Content-Length, and a body, of one byte less than the range that it says it is."""
    send = handler.send_header

    def send_header(name: str, value: str) -> None:
        send(name, str(int(value) - 1) if name == "Content-Length" and int(value) else value)

    write = handler.write
    handler.send_header = send_header  # type: ignore[method-assign]
    handler.write = lambda data: write(data[:-1])  # type: ignore[method-assign]
    handler.close_connection = True
    return False


def redirect(to: str, code: int = 302) -> Fault:
    def answer(handler: Handler, _: int) -> bool:
        handler.whole(b"", "text/plain", code, Location=to)
        return True

    return answer


def other_range(handler: Handler, _: int) -> bool:
    """The range before the one that was asked for."""
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range") or "")
    if asked and int(asked[1]):
        del handler.headers["Range"]
        handler.headers["Range"] = f"bytes={int(asked[1]) - 1}-{int(asked[2]) - 1}"
    return False
