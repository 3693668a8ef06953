"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings

from byterefs.access import buckets
from serving import S3

pytest.register_assert_rewrite("conformance", "conformance_emitters")

# two shared cores: a slow example is the machine's, not the code's
settings.register_profile("byterefs", deadline=None, max_examples=50)
settings.load_profile("byterefs")

Shared = Callable[[str], Path]


@pytest.fixture(scope="session")
def shared() -> Shared:
    """Where a file of the shared data folder lies; skips without the folder, fails without the file."""
    beside = Path(__file__).parents[2] / "shared"
    root = Path(os.environ.get("BYTEREFS_SHARED") or beside) / "data"

    def find(path: str) -> Path:
        if not root.is_dir():
            pytest.skip(f"shared data folder absent ({root})")
        assert (root / path).exists(), f"{root} has no {path}"
        return root / path

    return find


def skip_is_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With BYTEREFS_NO_SKIP, which CI sets where the real files are, a skip is a failure."""
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("BYTEREFS_NO_SKIP"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"every test must run here (BYTEREFS_NO_SKIP): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skip_is_failure(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    skip_is_failure(report)
    return report


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3]:
    """The S3 server of this session, started by the first test that asks for it."""
    server = S3(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture
def s3_environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The same, with the usual AWS variables set for it."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    buckets.client.cache_clear()
    yield s3
    buckets.client.cache_clear()
