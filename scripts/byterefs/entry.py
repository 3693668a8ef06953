"""One ``main`` of keyword arguments, run from a Snakemake rule or from a shell.

A rule's *named* inputs, outputs and params are the keyword arguments; its wildcards are too where
``main`` has the name, and so are its resources. In a shell the same signature is the command line, and the docstring its help.
"""

from __future__ import annotations

import argparse
import errno
import gc
import inspect
import json
import logging
import re
import sqlite3
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from byterefs.errors import ByteRefsError, ConfigError

log = logging.getLogger("byterefs")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SPACE = "No space left on device"

Main = Callable[..., Any]


def run(main: Main, snakemake: Any = None, argv: Sequence[str] | None = None) -> None:
    """Call ``main``, log the counts that it gives back.

    A ByteRefsError is one line on stderr and in the rule's log, and exit code 1; any other
    exception is a defect and keeps its traceback.
    """
    # the records of an archive live to the end: walking them again and again is a sixth of `plan`
    gc.set_threshold(100_000, 50, 100)
    if snakemake is None:
        values = from_argv(main, sys.argv[1:] if argv is None else argv)
        with logging_to(None), refusing():
            report(main(**values))
    else:
        with logging_to(Path(snakemake.log[0]) if snakemake.log else None), refusing():
            report(main(**from_rule(main, snakemake)))


@contextmanager
def refusing() -> Iterator[None]:
    """Log an exception in the way that fits its kind, and leave with exit code 1."""
    try:
        yield
    except Exception as error:
        if full := no_space(error):
            log.error("%s", full)
        elif isinstance(error, ByteRefsError):
            log.error("%s", " ".join(str(error).split()))
        else:
            log.exception("this is a defect of byterefs, or of the machine:")
        sys.exit(1)


def no_space(error: BaseException | None) -> str | None:
    """The sentence for an error that a full disk, a quota or a limit on file sizes caused; None for another one.

    Libraries hide the number: SQLite has a code of its own, Icechunk and DuckDB a text.
    """
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) else None
        if number in FULL or code == sqlite3.SQLITE_FULL or NO_SPACE in str(error):
            said = " ".join(str(error).split())
            return (
                f"there is no space left to write to ({said[:200]}); free some and run again: what was "
                f"finished is kept, and the store and every form are as they were or are made again"
            )
        error = error.__cause__ or error.__context__
    return None


def report(counts: Mapping[str, Any] | None) -> None:
    """One log line per count."""
    for name, value in (counts or {}).items():
        log.info("%s: %s", name, value if isinstance(value, str) else json.dumps(value))


@contextmanager
def logging_to(path: Path | None) -> Iterator[None]:
    """Log to stderr and, where given, to a fresh file at ``path``."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    log.handlers = handlers
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.handlers = []
        log.propagate = True
        for handler in handlers:
            handler.close()


def from_rule(main: Main, snakemake: Any) -> dict[str, Any]:
    """Keyword arguments of ``main`` from a rule; ConfigError names what is missing or too much."""
    wanted = hints(main)
    given: dict[str, Any] = {}
    for part in (snakemake.input, snakemake.output, snakemake.params):
        given |= dict(part.items())
    for part in (snakemake.wildcards, snakemake.resources):
        given |= {k: v for k, v in part.items() if k in wanted and k not in given}
    extra = sorted(given.keys() - wanted.keys())
    missing = sorted(required(main) - given.keys())
    if extra or missing:
        raise ConfigError(
            f"rule {snakemake.rule}: its script takes {', '.join(wanted)}; too many: "
            f"{', '.join(extra) or 'none'}; missing: {', '.join(missing) or 'none'}"
        )
    return {name: convert(value, wanted[name], name) for name, value in given.items()}


def from_argv(main: Main, argv: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments of ``main`` from a command line; argparse's own exit where it does not fit."""
    given = {k: v for k, v in vars(parser(main).parse_args(argv)).items() if v is not None}
    wanted = hints(main)
    try:
        return {name: convert(value, wanted[name], name) for name, value in given.items()}
    except ConfigError as error:
        parser(main).error(str(error))


def parser(main: Main) -> argparse.ArgumentParser:
    """The command line that a signature and a numpy docstring make."""
    text, described = docstring(main)
    made = argparse.ArgumentParser(
        prog=Path(main.__code__.co_filename).name,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, parameter in inspect.signature(main).parameters.items():
        needed = parameter.default is inspect.Parameter.empty
        words = described.get(name, "").replace("%", "%%")
        if not needed and parameter.default not in (None, "", (), {}):
            words += f" [default: {parameter.default}]"
        options: dict[str, Any] = {"help": words, "required": needed}
        kind = hints(main)[name]
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif typing.get_origin(kind) is tuple:
            options["nargs"] = "*"
        made.add_argument(f"--{name.replace('_', '-')}", dest=name, default=None, **options)
    return made


def docstring(main: Main) -> tuple[str, dict[str, str]]:
    """(the text before ``Parameters``, what is said there of each parameter)."""
    text, _, rest = (inspect.getdoc(main) or "").partition("\nParameters\n----------\n")
    described: dict[str, list[str]] = {}
    words: list[str] = []
    for line in rest.splitlines():
        if re.match(r"\w+( :.*)?$", line):
            words = described.setdefault(line.split(" :")[0], [])
        elif line.strip():
            words.append(line.strip())
    return text.strip(), {name: " ".join(lines) for name, lines in described.items()}


def hints(main: Main) -> dict[str, Any]:
    """Name to annotation of every parameter, in order; ``X | None`` counts as ``X``."""
    found = typing.get_type_hints(main)
    return {name: _plain(found[name]) for name in inspect.signature(main).parameters}


def required(main: Main) -> set[str]:
    """Names of parameters without a default."""
    parameters = inspect.signature(main).parameters.items()
    return {name for name, p in parameters if p.default is inspect.Parameter.empty}


def convert(value: Any, kind: Any, name: str) -> Any:
    """``value`` as the annotation ``kind`` has it; a mapping may come as JSON or as a dataset file."""
    origin = typing.get_origin(kind) or kind
    if value is None:
        return None
    try:
        if origin is tuple:
            items = [value] if isinstance(value, str) else list(value)
            return tuple(convert(item, typing.get_args(kind)[0], name) for item in items)
        if origin in (dict, Mapping):
            return value if isinstance(value, Mapping) else _mapping(str(value))
        if kind is bool and not isinstance(value, bool):
            raise ValueError(f"{value!r} is neither true nor false")
        return value if kind is Any else kind(value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name}: {error}") from None


def _mapping(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        from byterefs import config  # its jsonschema is a third of the start of a job

        return config.load(Path(text))
    found: dict[str, Any] = json.loads(text)
    return found


def _plain(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(a for a in typing.get_args(kind) if a is not type(None))
    return kind
