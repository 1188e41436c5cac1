"""Questions get a tenth of the time while records flow, and all of it else."""

from holdfast.rpc.core.question_share import FLOW_NS, FLOWING_NS, QUESTIONS_NS, SPAN_NS, QuestionShare


def test_without_records_questions_never_wait() -> None:
    share = QuestionShare()
    for number in range(100):
        share.spent(SPAN_NS, number * SPAN_NS, is_question=True)
        assert share.wait_ns(number * SPAN_NS) == 0


def test_while_records_flow_questions_wait_for_the_next_span_once_they_had_their_part() -> None:
    share = QuestionShare()
    share.spent(FLOWING_NS, 0, is_question=False)
    share.spent(QUESTIONS_NS - 1, 5, is_question=True)
    assert share.wait_ns(10) == 0
    share.spent(1, 20, is_question=True)
    assert share.wait_ns(30) == SPAN_NS - 30
    assert share.wait_ns(SPAN_NS) == 0


def test_records_count_for_a_while_and_a_single_small_one_does_not() -> None:
    share = QuestionShare()
    share.spent(FLOWING_NS - 1, 0, is_question=False)
    share.spent(QUESTIONS_NS, 1, is_question=True)
    assert share.wait_ns(2) == 0
    share.spent(1, 3, is_question=False)
    assert share.wait_ns(4) > 0
    share.spent(QUESTIONS_NS, FLOW_NS, is_question=True)
    assert share.wait_ns(FLOW_NS + 2) > 0
    assert share.wait_ns(FLOW_NS + 3) == 0
