"""Records are refused before the disk is full."""

from holdfast.storage.core.free_space import FreeSpace


def test_before_the_disk_was_asked_and_without_a_limit_nothing_is_refused() -> None:
    unknown, unlimited = FreeSpace(10), FreeSpace(0)
    unlimited.measured(0, 100)
    unknown.took(5)
    assert unknown.has_room(1 << 40)
    assert unlimited.has_room(1 << 40)
    assert not unknown.is_low


def test_what_is_left_must_stay_above_the_limit() -> None:
    space = FreeSpace(10)
    assert not space.measured(14, 100)
    assert [space.has_room(size) for size in (4, 5)] == [True, False]
    assert [space.has_room_for_copy(size) for size in (9, 10)] == [True, False]
    space.took(4)
    assert [space.has_room(size) for size in (0, 1)] == [True, False]


def test_a_dir_that_was_short_has_room_again_only_with_ample_space() -> None:
    space = FreeSpace(10)
    seen = []
    for free in (19, 10, 9, 10, 19, 20, 10):
        space.measured(free, 100)
        seen.append(space.is_short)
    assert seen == [False, False, True, True, True, False, False]


def test_a_dir_is_short_when_it_has_refused_though_it_is_not_below_the_limit() -> None:
    """Records of clients alone leave up to a batch more than the limit, and no further one has room."""
    space = FreeSpace(10)
    space.measured(14, 100)
    assert not space.has_room(5)
    space.measured(14, 100)
    assert space.is_short
    space.measured(25, 100)
    assert not space.is_short


def test_a_measure_says_when_refusing_begins_and_ends() -> None:
    space = FreeSpace(10)
    assert [space.measured(free, 100) for free in (20, 9, 3, 10, 11)] == [False, True, False, True, False]
    assert "11 bytes left" in space.why_not("/a")
