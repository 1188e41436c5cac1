from dataclasses import replace

import pytest

from holdfast.scenario.raft import make_config


def test_members_of_a_sound_quorum_are_accepted() -> None:
    make_config(2, (1, 2, 3)).validate()
    make_config(7, (1, 2, 3), is_voter=False).validate()


def test_voter_must_be_among_the_voters() -> None:
    with pytest.raises(ValueError, match="add it there"):
        make_config(7, (1, 2, 3)).validate()


def test_broker_must_not_take_a_voters_id() -> None:
    """The leader would count its fetches as that voter's, and commit what no majority holds."""
    with pytest.raises(ValueError, match="give this broker another id"):
        make_config(2, (1, 2, 3), is_voter=False).validate()


def test_quorum_needs_voters() -> None:
    with pytest.raises(ValueError, match="name 1, 3 or 5"):
        make_config(7, (), is_voter=False).validate()


def test_fetch_timeout_must_exceed_the_long_poll() -> None:
    with pytest.raises(ValueError, match="raise it above"):
        replace(make_config(1, (1, 2, 3)), fetch_timeout_ms=500).validate()


def test_a_dead_voter_is_not_asked_without_a_pause() -> None:
    with pytest.raises(ValueError, match="set it to 1 or more"):
        replace(make_config(1, (1, 2, 3)), retry_backoff_ms=0).validate()


def test_derived_values() -> None:
    config = make_config(2, (3, 2, 1))
    assert config.other_voters == (1, 3)
    assert config.check_quorum_timeout_ms == 3_000
    assert config.backoff_step_ms == 50
