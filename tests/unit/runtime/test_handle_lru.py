"""Which handles are given up, and which errors mean that something ran out."""

import errno

import pytest

from holdfast.runtime.core.handle_lru import HandleLru, handle_limit
from holdfast.runtime.core.shortage import is_shortage


def lru_of(names: str, limit: int | None = 3) -> HandleLru[str]:
    lru: HandleLru[str] = HandleLru(limit)
    for name in names:
        lru.opened(name, is_clean=True)
    return lru


def given_up(lru: HandleLru[str]) -> str:
    return "".join(iter(lru.give_up, None))


def test_the_least_recently_used_goes_first() -> None:
    lru = lru_of("abc")
    lru.used("a")
    lru.used("unknown")
    assert given_up(lru) == "bca"
    assert len(lru) == 0


def test_files_without_unflushed_bytes_go_before_the_others() -> None:
    lru = lru_of("abcd")
    lru.wrote("a")
    lru.wrote("c")
    lru.used("a")
    assert given_up(lru) == "bdca"


def test_a_pinned_handle_stays_until_every_use_of_it_has_ended() -> None:
    lru = lru_of("ab")
    lru.pin("a")
    lru.pin("a")
    lru.wrote("a")
    lru.unpin("a", is_clean=False)
    assert given_up(lru) == "b"
    assert len(lru) == 1
    lru.unpin("a", is_clean=False)
    assert given_up(lru) == "a"


def test_a_closed_file_is_forgotten_with_its_pins() -> None:
    lru = lru_of("ab")
    lru.pin("a")
    lru.closed("a")
    lru.unpin("a", is_clean=True)
    lru.closed("b")
    assert given_up(lru) == ""


def test_what_was_not_used_for_a_whole_span_of_time_is_idle() -> None:
    lru = lru_of("abcde", limit=None)
    lru.wrote("d")
    lru.wrote("e")
    lru.pin("c")
    lru.next_span()
    lru.used("a")
    lru.wrote("d")
    assert lru.give_up_idle() is None, "each was used in the span before"
    lru.next_span()
    assert "".join(iter(lru.give_up_idle, None)) == "be"
    lru.next_span()
    assert "".join(iter(lru.give_up_idle, None)) == "ad"
    assert len(lru) == 1


def test_so_many_are_given_up_that_the_coming_ones_fit() -> None:
    assert lru_of("abc").excess() == 0
    assert lru_of("abc").excess(coming=1) == 1
    assert lru_of("abcde").excess(coming=2) == 4
    assert lru_of("abcde", limit=None).excess(coming=2) == 0


@pytest.mark.parametrize(("open_files_max", "limit"), [(1, 4), (256, 96), (4096, 1536)])
def test_logs_leave_handles_to_connections_and_small_files(open_files_max: int, limit: int) -> None:
    assert handle_limit(open_files_max) == limit


@pytest.mark.parametrize(
    ("operation", "number", "shortage"),
    [
        ("open", errno.EMFILE, True),
        ("flush", errno.ENFILE, True),
        ("append", errno.ENOMEM, True),
        ("read", errno.EAGAIN, True),
        ("flush", errno.ENOMEM, False),
        ("sync_folder", errno.ENOMEM, False),
        ("truncate", errno.EAGAIN, False),
        ("lock_folder", errno.EAGAIN, False),
        ("append", errno.ENOSPC, False),
        ("append", errno.EIO, False),
    ],
)
def test_a_shortage_is_no_failure_of_the_disk(operation: str, number: int, shortage: bool) -> None:
    """A-20: after a sync that lacked memory, what the file holds is unknown."""
    assert is_shortage(operation, number) is shortage
