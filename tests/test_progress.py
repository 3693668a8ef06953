"""What a log tells of work that takes long."""

import logging

import pytest

from byterefs import progress


def test_a_log_tells_each_tenth_of_many_and_nothing_of_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "byterefs")
    assert list(progress.shown(range(9_999), "verify vrt")) == list(range(9_999))
    assert caplog.messages == []
    assert list(progress.shown(range(20_001), "verify vrt")) == list(range(20_001))
    assert len(caplog.messages) == 10
    assert caplog.messages[0] == "verify vrt: 2001 of 20001"
    assert caplog.messages[-1] == "verify vrt: 20001 of 20001"
