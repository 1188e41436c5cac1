"""One connection as a core sees it (D9)."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.broker_link import BrokerLink

BACKOFF = Backoff(first_ms=20, max_ms=100)


def test_one_attempt_at_a_time() -> None:
    link = BrokerLink()
    assert link.begin(0)
    assert not link.begin(0)
    link.connected()
    assert link.is_up
    assert not link.begin(0)


def test_a_loss_that_is_told_twice_is_one() -> None:
    """Each request in flight tells of it, the later ones when the next attempt is under way."""
    link = BrokerLink()
    link.begin(0)
    link.connected()
    link.lost()
    assert link.begin(0)
    link.lost()
    assert not link.begin(0)


def test_a_lost_connection_is_made_again_at_once_and_a_refused_one_after_a_pause() -> None:
    link = BrokerLink()
    link.begin(0)
    link.connected()
    link.lost()
    assert link.begin(0)
    link.failed(0, BACKOFF)
    assert not link.begin(19)
    assert link.begin(20)
    link.failed(20, BACKOFF)
    assert not link.begin(59)
    assert link.begin(60)
