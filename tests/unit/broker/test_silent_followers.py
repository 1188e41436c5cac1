"""Followers that send no fetch leave the ISR before their session ends, where that helps (R115)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from holdfast.broker.core.replicas.silent_followers import FORGIVEN_AFTER_MS, Silence, SilentFollowers
from holdfast.scenario.partition import LonePartition, registration

SILENT_MS = 3_000
LAG_MS = 30_000


class Watch:
    """A broker's watch, and a clock that looks as often as it asks for."""

    def __init__(self, silent_ms: int = SILENT_MS) -> None:
        self.now_ms = 0
        self.followers = SilentFollowers(silent_ms, LAG_MS, 0)

    def until(self, now_ms: int, quiet: Mapping[int, int | None]) -> Silence | None:
        """Look until then as often as is due; what the last look has found."""
        found = None
        while (deadline_ms := self.followers.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self.now_ms = deadline_ms
            found = self.followers.look(quiet, deadline_ms)
        return found


def test_a_follower_that_owes_a_fetch_is_silent_after_the_time() -> None:
    watch = Watch()
    assert watch.until(2_999, {2: 0, 3: None}) is None
    assert watch.until(3_000, {2: 0, 3: None}) == Silence(frozenset({2}), frozenset({3}), 0)


def test_a_follower_whose_fetch_waits_here_is_not_silent() -> None:
    assert Watch().until(20_000, {2: None, 3: None}) is None


def test_nothing_is_looked_at_when_any_silence_is_tolerated() -> None:
    watch = Watch(silent_ms=0)
    assert watch.followers.next_deadline_ms() is None
    assert watch.followers.look({2: 0}, 1_000_000) is None


def test_time_in_which_the_leader_itself_stood_still_does_not_count() -> None:
    watch = Watch()
    watch.until(1_000, {2: 900, 3: None})
    assert watch.followers.look({2: 900, 3: 950}, 60_000) is None, "requests may lie unread"
    assert watch.until(62_500, {2: 900, 3: None}) is None
    found = watch.until(63_000, {2: 900, 3: None})
    assert found is not None
    assert found.silent == {2}


def test_a_follower_that_falls_silent_again_and_again_gets_more_time_each_time() -> None:
    watch, begins = Watch(), 0
    for tolerated_ms in (3_000, 6_000, 12_000, 24_000, LAG_MS, LAG_MS):
        assert watch.until(begins + tolerated_ms - 1, {2: begins, 3: None}) is None
        assert watch.until(begins + tolerated_ms, {2: begins, 3: None}) is not None
        watch.followers.dropped(2, begins, watch.now_ms)
        begins = watch.now_ms
    begins = watch.now_ms + FORGIVEN_AFTER_MS
    watch.until(begins, {2: None, 3: None})
    assert watch.until(begins + 3_000, {2: begins, 3: None}) is not None


def test_further_partitions_of_the_same_silence_do_not_wait_again() -> None:
    watch = Watch()
    assert watch.until(3_000, {2: 0, 3: None}) is not None
    watch.followers.dropped(2, 0, 3_000)
    watch.followers.dropped(2, 0, 3_000)
    assert watch.until(3_500, {2: 0, 3: None}) is not None


def leader_that_waits_for(*lagging: int, min_isr: int = 2, isr: tuple[int, ...] = (1, 2, 3)) -> LonePartition:
    """Broker 1 leads with 10 records; the named members have none of them, the others all."""
    scenario = LonePartition()
    scenario.register(replace(registration(), isr=isr, min_isr=min_isr))
    scenario.append(10)
    for member in isr[1:]:
        scenario.fetch(member, 0 if member in lagging else 10)
    return scenario


def silent(*followers: int, heard: tuple[int, ...] = ()) -> Silence:
    return Silence(frozenset(followers), frozenset(heard))


@pytest.mark.parametrize(
    ("scenario", "silence", "isr"),
    [
        pytest.param(leader_that_waits_for(3), silent(3, heard=(2,)), (1, 2), id="holds writes back"),
        pytest.param(leader_that_waits_for(), silent(3, heard=(2,)), None, id="has everything"),
        pytest.param(leader_that_waits_for(3), silent(2, heard=(3,)), None, id="another one is silent"),
        pytest.param(leader_that_waits_for(3), silent(3), None, id="no member is heard"),
        pytest.param(leader_that_waits_for(3), silent(3, heard=(4,)), None, id="only a stranger is heard"),
        pytest.param(leader_that_waits_for(3), silent(3, heard=(1,)), None, id="its own name is heard"),
        pytest.param(leader_that_waits_for(3), silent(1, heard=(2,)), None, id="its own name is silent"),
        pytest.param(leader_that_waits_for(3, min_isr=3), silent(3, heard=(2,)), None, id="min ISR needs it"),
        pytest.param(leader_that_waits_for(2, 3), silent(2, 3), None, id="the leader is alone"),
        pytest.param(leader_that_waits_for(2, min_isr=1, isr=(1, 2)), silent(2), None, id="two replicas"),
    ],
)
def test_a_silent_member_is_proposed_out_of_the_isr_only_where_writes_go_on_then(
    scenario: LonePartition, silence: Silence, isr: tuple[int, ...] | None
) -> None:
    proposal = scenario.partition.maybe_drop_silent(silence)
    assert (None if proposal is None else proposal.isr) == isr
    assert scenario.partition.maybe_drop_silent(silence) is None, "one proposal at a time"


def test_the_high_watermark_waits_for_a_dropped_follower_only_when_it_fetches_again() -> None:
    """It had everything within the lag time, so it may join again soon."""
    scenario = leader_that_waits_for()
    scenario.append(10)
    scenario.fetch(2, 20)
    assert scenario.partition.high_watermark == 10
    assert scenario.partition.maybe_drop_silent(silent(3, heard=(2,))) is not None
    scenario.register(registration(isr=(1, 2), partition_epoch=1))
    scenario.partition.advance_high_watermark(scenario.now_ms)
    assert scenario.partition.high_watermark == 20
    scenario.append(10)
    scenario.fetch(3, 10)
    scenario.fetch(2, 30)
    assert scenario.partition.high_watermark == 20


def test_a_dropped_follower_may_join_again_only_when_it_has_fetched() -> None:
    """It stands at the high watermark that it held back, and was caught up a moment ago."""
    scenario = leader_that_waits_for()
    scenario.append(10)
    scenario.fetch(2, 20)
    scenario.partition.maybe_drop_silent(silent(3, heard=(2,)))
    scenario.register(registration(isr=(1, 2), partition_epoch=1))
    assert scenario.partition.retry_expand(scenario.now_ms) is None
    scenario.fetch(3, 20)
    assert scenario.proposal is not None
    assert scenario.proposal.isr == (1, 2, 3)


def test_a_follower_is_not_silent_before_it_could_fetch_in_a_new_leader_epoch() -> None:
    """Its last session here ended long ago, when this broker led something before."""
    scenario = LonePartition()
    scenario.register(registration())
    scenario.append(10)
    scenario.fetch(2, 10)
    began_ms = scenario.now_ms
    assert scenario.partition.maybe_drop_silent(Silence(frozenset({3}), frozenset({2}), began_ms - 1)) is None
    proposal = scenario.partition.maybe_drop_silent(Silence(frozenset({3}), frozenset({2}), began_ms))
    assert proposal is not None
    assert proposal.isr == (1, 2)
