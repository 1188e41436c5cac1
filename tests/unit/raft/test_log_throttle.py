from holdfast.raft.core.log_throttle import REPEAT_MS, TEXTS_MAX, LogThrottle


def test_the_same_trouble_is_told_once_a_minute() -> None:
    notes = LogThrottle()
    told = [time_ms for time_ms in range(0, 3 * REPEAT_MS, 80) if notes.is_due("voter 1 refuses", time_ms)]
    assert told == [0, REPEAT_MS, 2 * REPEAT_MS]


def test_troubles_that_take_turns_are_told_once_a_minute_each() -> None:
    """As of a node of another cluster: every voter refuses it, and it asks them in turn."""
    notes = LogThrottle()
    texts = [f"voter {number} refuses" for number in (1, 2, 3)]
    told = [texts[n % 3] for n in range(750) if notes.is_due(texts[n % 3], 80 * n)]
    assert told == texts


def test_as_many_texts_are_remembered_as_can_take_turns_and_no_more() -> None:
    notes = LogThrottle()
    for number in range(TEXTS_MAX + 1):
        assert notes.is_due(f"epoch {number}", number)
    assert not notes.is_due(f"epoch {TEXTS_MAX}", 1_000)
    assert not notes.is_due("epoch 1", 1_000)
    assert notes.is_due("epoch 0", 1_000)


def test_a_text_told_again_is_the_youngest() -> None:
    notes = LogThrottle()
    for number in range(TEXTS_MAX):
        notes.is_due(f"epoch {number}", 0)
    assert notes.is_due("epoch 0", REPEAT_MS)
    assert notes.is_due("another", REPEAT_MS)
    assert not notes.is_due("epoch 0", REPEAT_MS)
