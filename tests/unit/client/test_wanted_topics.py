"""Topics are asked for while they are used, and for five minutes behind that (KAFKA-8904)."""

from typing import Any

import pytest

from holdfast.client.core.errors import ClientError
from holdfast.client.core.wanted_topics import NAMES_A_REQUEST, WantedTopics
from holdfast.protocol.errors import ErrorCode

NONE_IN_USE: tuple[str, ...] = ()


def test_names_are_asked_for_in_the_order_in_which_they_were_first_wanted() -> None:
    wanted = WantedTopics()
    assert [wanted.use(name, 0) for name in ("b", "a", "b")] == [True, True, False]
    assert wanted.portions() == [("b", "a")]
    assert "a" in wanted
    assert "c" not in wanted


def test_a_topic_that_is_not_used_is_forgotten_after_its_time_and_wanted_anew_when_it_is_used() -> None:
    wanted = WantedTopics(max_idle_ms=1_000)
    wanted.use("a", 0)
    wanted.use("b", 0)
    wanted.use("b", 500)
    assert wanted.forget_idle(999, NONE_IN_USE) == []
    assert wanted.forget_idle(1_000, NONE_IN_USE) == ["a"]
    assert wanted.portions() == [("b",)]
    assert wanted.use("a", 1_100)
    assert wanted.forget_idle(1_500, NONE_IN_USE) == ["b"]
    assert wanted.portions() == [("a",)]


def test_a_topic_in_use_is_kept_and_its_time_begins_when_its_use_ends() -> None:
    wanted = WantedTopics(max_idle_ms=1_000)
    wanted.use("a", 0)
    assert wanted.forget_idle(5_000, ("a",)) == []
    assert wanted.forget_idle(5_999, NONE_IN_USE) == []
    assert wanted.forget_idle(6_000, NONE_IN_USE) == ["a"]


def test_five_minutes_are_what_kafka_gives_a_topic() -> None:
    wanted = WantedTopics()
    wanted.use("a", 0)
    assert wanted.forget_idle(299_999, NONE_IN_USE) == []
    assert wanted.forget_idle(300_000, NONE_IN_USE) == ["a"]


def test_more_names_than_a_request_should_carry_go_in_several() -> None:
    wanted = WantedTopics()
    assert wanted.portions() == [()]  # brokers are asked for all the same
    names = [f"t{index}" for index in range(2 * NAMES_A_REQUEST + 1)]
    for name in names:
        wanted.use(name, 0)
    portions = wanted.portions()
    assert [len(portion or ()) for portion in portions] == [NAMES_A_REQUEST, NAMES_A_REQUEST, 1]
    assert [name for portion in portions for name in portion or ()] == names


@pytest.mark.parametrize("name", ["x" * 250, "caf\udce9", b"t", None])
def test_a_name_that_no_topic_can_have_is_refused_and_never_asked_for(name: Any) -> None:
    wanted = WantedTopics()
    wanted.use("t", 0)
    with pytest.raises(ClientError) as caught:
        wanted.use(name, 0)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert wanted.portions() == [("t",)]


def test_every_topic_there_is_can_be_asked_for() -> None:
    wanted = WantedTopics()
    wanted.use("t", 0)
    wanted.all_topics = True
    assert wanted.portions() == [None]
