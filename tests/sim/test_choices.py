"""Seeds and tapes: the same draws for the same seed, and for the tape that was written."""

from array import array

from holdfast.sim.machine.choices import Choices, between, one_in


def draws(choices: Choices) -> list[int]:
    return [choices.stream(label).draw(bound) for bound in range(1, 40) for label in ("net", "sched")]


def test_equal_seeds_draw_equal_numbers_and_streams_do_not_disturb_each_other() -> None:
    assert draws(Choices("7")) == draws(Choices("7"))
    assert draws(Choices("7")) != draws(Choices("8"))
    disturbed = Choices("7")
    disturbed.stream("fault").draw(10)
    assert draws(disturbed) == draws(Choices("7"))


def test_a_tape_gives_back_what_was_recorded_and_recording_changes_nothing() -> None:
    recording = Choices("7", record=True)
    assert draws(recording) == draws(Choices("7"))
    assert draws(Choices("other", tape=recording.tape())) == draws(Choices("7"))


def test_an_edited_tape_goes_on_with_the_simplest_choice() -> None:
    edited = Choices("7", tape={"net": array("Q", [5, 100])})
    net = edited.stream("net")
    assert [net.draw(10), net.draw(8), net.draw(10), edited.stream("sched").draw(3)] == [5, 100 % 8, 0, 0]


def test_among_equals_each_has_its_turn_behind_the_end_of_a_tape() -> None:
    work = Choices("7", tape={"work": array("Q", [2, 9])}).stream("work")
    assert [work.draw_alike(3) for _ in range(6)] == [2, 9 % 3, 1, 2, 0, 1]
    assert work.draw(3) == 0
    seeded, recording = Choices("7").stream("work"), Choices("7", record=True)
    assert [seeded.draw(9) for _ in range(9)] == [recording.stream("work").draw_alike(9) for _ in range(9)]
    assert len(recording.tape()["work"]) == 9


def test_the_tape_of_a_replay_holds_what_was_read_of_it() -> None:
    replayed = Choices("7", tape={"net": array("Q", [5, 100]), "disk": array("Q", [1])})
    replayed.stream("net").draw(10)
    assert replayed.tape() == {"net": array("Q", [5])}


def test_a_recording_knows_how_many_choices_each_draw_had() -> None:
    recording = Choices("7", record=True)
    for bound in (3, 50):
        recording.stream("net").draw(bound)
    assert recording.bounds() == {"net": array("Q", [3, 50])}


def test_zero_is_the_simplest_choice() -> None:
    zeros = Choices("7", tape={}).stream("fault")
    assert not one_in(zeros, 1_000)
    assert between(zeros, 5, 9) == 5
    assert not one_in(Choices("7").stream("fault"), 0)
