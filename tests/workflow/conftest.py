"""Fixtures of the workflow's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflow.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
