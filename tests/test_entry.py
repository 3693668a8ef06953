"""One signature is a rule's script and a command line; refusals are one line, defects keep a traceback."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from byterefs import entry
from byterefs.config_checks import STAGES
from byterefs.errors import ByteRefsError, ConfigError


class Named(dict):
    """What Snakemake passes: names to values (its Namedlist has ``items`` too)."""


def rule(tmp_path: Path, **parts: Mapping[str, Any]) -> SimpleNamespace:
    empty = {"input": {}, "output": {}, "params": {}, "wildcards": {}, "resources": {}}
    named = {k: Named(v) for k, v in {**empty, **parts}.items()}
    return SimpleNamespace(rule="toy", log=[str(tmp_path / "logs/toy.log")], **named)


calls: list[dict[str, Any]] = []


def main(
    *,
    source: Path,
    scans: tuple[Path, ...] = (),
    batch: str = "",
    limit: int = 4,
    full: bool = False,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Toy with a source, 100 % typed.

    Parameters
    ----------
    source
        Where it is read from,
        on two lines.
    limit : int
        How many at most.
    """
    calls.append(dict(locals()))
    return {"sources": 1, "said": "yes"}


def test_a_rule_and_a_command_line_call_main_with_equal_values(tmp_path: Path) -> None:
    calls.clear()
    entry.run(
        main,
        rule(
            tmp_path,
            input={"source": "a/b.nc", "scans": ["x", "y"]},
            params={"limit": 7, "full": True, "options": {"a": 1}},
            wildcards={"batch": "0f", "dataset": "demo"},
        ),
    )
    entry.run(
        main,
        argv=[
            "--source",
            "a/b.nc",
            "--scans",
            "x",
            "y",
            "--limit",
            "7",
            "--full",
            "--batch",
            "0f",
            "--options",
            '{"a": 1}',
        ],
    )
    assert calls[0] == calls[1]
    assert calls[0] == {
        "source": Path("a/b.nc"),
        "scans": (Path("x"), Path("y")),
        "batch": "0f",
        "limit": 7,
        "full": True,
        "options": {"a": 1},
    }


def test_the_counts_go_to_the_log_one_line_per_fact(tmp_path: Path, capsys) -> None:
    entry.run(main, rule(tmp_path, input={"source": "a"}))
    assert (tmp_path / "logs/toy.log").read_text() == "sources: 1\nsaid: yes\n"
    assert capsys.readouterr().err == "sources: 1\nsaid: yes\n"


def test_a_single_input_is_a_tuple_of_one(tmp_path: Path) -> None:
    calls.clear()
    entry.run(main, rule(tmp_path, input={"source": "a", "scans": "x"}))
    assert calls[0]["scans"] == (Path("x"),)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"input": {"source": "a", "surprise": "b"}}, "too many: surprise; missing: none"),
        ({"params": {"limit": 3}}, "too many: none; missing: source"),
    ],
)
def test_a_rule_that_does_not_fit_its_script_is_refused_by_name(
    tmp_path: Path, parts: dict[str, Any], says: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        entry.run(main, rule(tmp_path, **parts))
    assert exit.value.code == 1
    log = (tmp_path / "logs/toy.log").read_text()
    assert log.startswith("rule toy: its script takes source, scans, batch")
    assert says in log


def test_a_refusal_is_one_line_on_stderr_and_in_the_log_and_exit_1(tmp_path: Path, capsys) -> None:
    def refuse(*, source: Path) -> None:
        raise ByteRefsError(f"{source}: no\nway")

    with pytest.raises(SystemExit) as exit:
        entry.run(refuse, rule(tmp_path, input={"source": "a"}))
    assert exit.value.code == 1
    assert (tmp_path / "logs/toy.log").read_text() == "a: no way\n"
    assert capsys.readouterr().err == "a: no way\n"


def test_a_defect_keeps_its_traceback(tmp_path: Path, capsys) -> None:
    def broken(*, source: Path) -> None:
        raise ZeroDivisionError(source)

    with pytest.raises(SystemExit):
        entry.run(broken, rule(tmp_path, input={"source": "a"}))
    assert "Traceback" in (tmp_path / "logs/toy.log").read_text()
    assert "in broken" in capsys.readouterr().err


def test_help_shows_the_docstring_each_option_and_its_default(capsys) -> None:
    with pytest.raises(SystemExit) as exit:
        entry.run(main, argv=["--help"])
    assert exit.value.code == 0
    out = capsys.readouterr().out
    assert "Toy with a source, 100 % typed." in out
    assert "Where it is read from, on two lines." in " ".join(out.split())
    assert "How many at most. [default: 4]" in " ".join(out.split())
    assert "--no-full" in out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--limit", "3"], "the following arguments are required: --source"),
        (["--source", "a", "--limit", "few"], "limit: invalid literal for int()"),
        (["--source", "a", "--options", "{"], "options: Expecting property name"),
        (["--source", "a", "--colour", "x"], "unrecognized arguments: --colour"),
    ],
)
def test_a_command_line_that_does_not_fit_says_so(capsys, argv: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as exit:
        entry.run(main, argv=argv)
    assert exit.value.code == 2
    assert says in capsys.readouterr().err


def test_a_mapping_on_the_command_line_may_be_a_dataset_file() -> None:
    path = Path(__file__).parents[1] / "config/datasets/oisst.yaml"
    assert entry.convert(str(path), dict, "config")["dataset"] == "oisst"


def test_a_word_is_no_truth_value() -> None:
    with pytest.raises(ConfigError, match="full: 'yes' is neither true nor false"):
        entry.convert("yes", bool, "full")


SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize("name", STAGES)
def test_every_script_has_help_for_each_of_its_options(name: str) -> None:
    script = runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name=name)["main"]
    text, described = entry.docstring(script)
    assert text
    assert list(described) == list(entry.hints(script))
    assert all(f"--{o.replace('_', '-')}" in entry.parser(script).format_help() for o in described)
