"""The sets of a partition and what drills wait for."""

from holdfast.drills.partition_sets import NO_LEADER, Sets, Wanted


def test_sets_read_as_in_the_kip() -> None:
    sets = Sets(NO_LEADER, (), (2, 3), (1,))
    assert str(sets) == "Leader=NoLeader, ISR=[], ELR=[2, 3], LastKnownELR=[1]"
    assert str(Sets(1, (1, 2))) == "Leader=1, ISR=[1, 2], ELR=[], LastKnownELR=[]"


def test_only_what_is_named_is_waited_for() -> None:
    seen = Sets(2, (1, 2), (3,), ())
    assert Wanted().is_met(seen)
    assert Wanted(leader=2, isr=(2, 1)).is_met(seen)
    assert not Wanted(leader=1).is_met(seen)
    assert not Wanted(isr=(1, 2, 3)).is_met(seen)
    assert not Wanted(elr=()).is_met(seen)
    assert Wanted(known=()).is_met(seen)
    assert str(Wanted(leader=NO_LEADER, elr=(3, 2))) == "Leader=NoLeader, ELR=[2, 3]"
