"""envs/setup.sh: which Python it takes, when it installs, what it says where it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ["sh", "cat", "cut", "dirname", "grep", "head", "mv", "rm", "sed", "sort", "tail", "tr"]


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """A PATH entry with what the script calls, and no Python."""
    folder = tmp_path_factory.mktemp("tools")
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


@pytest.fixture
def machine(tmp_path, tools):
    """A machine that has the Pythons that a test puts on it."""
    return Machine(tmp_path, tools)


class Machine:
    def __init__(self, home: Path, tools: Path) -> None:
        self.home, self.path = home, [tools]

    def python(self, place: str, prints: str = "", *, fails: bool = False) -> None:
        """An executable at ``place`` that answers the script's question with ``prints``."""
        file = self.home / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{'exit 127' if fails else f'echo {prints}'}\n")
        file.chmod(0o755)
        if ".pyenv/versions" not in place and file.parent not in self.path:
            self.path.insert(len(self.path) - 1, file.parent)

    def choice(self, **env: str) -> subprocess.CompletedProcess:
        path = os.pathsep.join(map(str, self.path))
        env |= {"PATH": path, "HOME": str(self.home)}
        return subprocess.run(
            ["sh", ROOT / "envs/setup.sh", "python"], env=env, capture_output=True, text=True
        )


def test_the_newest_python_with_a_wheel_for_every_package_is_taken(machine):
    for version in ("3.11", "3.12", "3.13", "3.14", "3.15"):
        machine.python(f"bin/python{version}", f"{version} 1 ok /opt/{version}")
    assert machine.choice().stdout == "/opt/3.13\n"


def test_of_one_version_the_newest_patch_is_taken(machine):
    machine.python("a/python3.13", "3.13 9 ok /opt/nine")
    machine.python("b/python3.13", "3.13 11 ok /opt/eleven")
    assert machine.choice().stdout == "/opt/eleven\n"


def test_python_3_14_is_taken_where_it_is_the_only_one(machine):
    machine.python("bin/python3", "3.14 0 ok /opt/3.14")
    assert machine.choice().stdout == "/opt/3.14\n"


def test_a_shim_that_fails_does_not_hide_the_python_behind_it(machine):
    machine.python("shims/python3.13", fails=True)
    machine.python("shims/python3", "3.11 7 ok /opt/3.11")
    machine.python("usr/python3.13", "3.13 5 ok /opt/3.13")
    assert machine.choice().stdout == "/opt/3.13\n"


def test_a_python_that_only_pyenv_knows_is_found(machine):
    machine.python("shims/python3.12", fails=True)
    machine.python(".pyenv/versions/3.12.1/bin/python", "3.12 1 ok /opt/3.12")
    assert machine.choice().stdout == "/opt/3.12\n"


def test_a_python_that_is_named_is_taken_though_another_would_be(machine):
    machine.python("bin/python3.13", "3.13 5 ok /opt/3.13")
    machine.python("mine/python", "3.12 5 ok /opt/mine")
    assert machine.choice(PYTHON=str(machine.home / "mine/python")).stdout == "/opt/mine\n"


def test_a_path_with_spaces_is_kept(machine):
    machine.python("my tools/python3.13", "3.13 5 ok '/opt/my python/3.13'")
    assert machine.choice().stdout == "/opt/my python/3.13\n"


def test_no_fit_python_is_one_sentence_that_says_what_to_install(machine):
    machine.python("bin/python3", "3.11 2 ok /usr/bin/python3.11")
    result = machine.choice()
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "found: 3.11" in result.stderr
    assert "install Python 3.13" in result.stderr


def test_a_python_without_venv_names_the_package_that_brings_it(machine):
    machine.python("bin/python3.13", "3.13 5 ensurepip /usr/bin/python3.13")
    result = machine.choice()
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "no module ensurepip" in result.stderr
    assert "apt-get install python3-venv" in result.stderr


def test_a_python_without_venv_is_passed_over_for_an_older_one_that_has_it(machine):
    machine.python("bin/python3.13", "3.13 5 ensurepip /usr/bin/python3.13")
    machine.python("bin/python3.12", "3.12 5 ok /opt/3.12")
    assert machine.choice().stdout == "/opt/3.12\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A repository that asks for no package, whose first set-up was killed half-way and then redone."""
    root = tmp_path_factory.mktemp("clone")
    for folder in ("envs", ".venv/lib"):
        (root / folder).mkdir(parents=True)
    (root / ".venv/lib/half-installed").write_text("half")
    shutil.copy(ROOT / "envs/setup.sh", root / "envs/setup.sh")
    (root / "envs/requirements.txt").write_text("# nothing\n")
    assert "ready" in setup(root).stdout
    return root


def setup(root: Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    env.pop("VENV", None)
    return subprocess.run(["sh", root / "envs/setup.sh"], env=env, capture_output=True, text=True)


def test_an_installation_that_was_interrupted_is_redone_from_nothing(clone):
    assert (clone / ".venv/byterefs.stamp").exists()
    assert not (clone / ".venv/lib/half-installed").exists()


def test_a_second_call_does_and_says_nothing(clone):
    result = setup(clone)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_an_environment_whose_python_is_gone_is_redone(clone):
    python = clone / ".venv/bin/python"
    python.unlink()
    python.symlink_to(clone / "uninstalled")
    assert "ready" in setup(clone).stdout
    assert setup(clone).stdout == ""


def test_packages_that_cannot_be_had_fail_with_a_log_and_leave_no_stamp(clone):
    (clone / "envs/requirements.txt").write_text(f"no-such-package==1 --hash=sha256:{'0' * 64}\n")
    result = setup(clone)
    assert result.returncode == 1
    assert "byterefs-install.log" in result.stderr
    assert not (clone / ".venv/byterefs.stamp").exists()
