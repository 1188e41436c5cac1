"""Any faults in any order: generations grow, a partition has one owner in each, no acknowledged commit is
lost, and the group comes to rest when the faults are over."""

import pytest
from hypothesis import Phase as Part
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.core.groups.effects import Phase
from tests.unit.client.groups.play import STEP_MS, Group, Member

#: What may happen, and to which member.
ACTIONS = [
    "join",
    "leave",
    "die",
    "kill_the_coordinator",
    "cut_off",
    "heal",
    "be_busy",
    "poll",
    "commit",
    "grow",
]
FAULTS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.sampled_from([0, 300, 2_000, 12_000])),
    max_size=14,
)


#: A rebalance may wait for a member that is gone as long as it may take to poll, and the session after it.
REST_MS = 90_000


class Watch:
    """What was seen of a group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.next_offset = 0
        #: {partition: highest offset whose commit was acknowledged}
        self.acknowledged: dict[int, int] = {}
        self.tokens: dict[object, dict[int, int]] = {}
        self._generations: dict[str, int] = {}
        self._owners: dict[tuple[int, int], str] = {}

    def look(self) -> None:
        for member in self.group.members:
            core = member.core
            if core.phase is not Phase.JOINED:
                continue  # a generation begins when its assignments are committed
            assert core.generation_id >= self._generations.get(core.member_id, -1), "generations grow"
            self._generations[core.member_id] = core.generation_id
            for index in member.reads if core.next_step() is None else ():
                owner = self._owners.setdefault((core.generation_id, index), core.member_id)
                assert owner == core.member_id, "one owner a partition and generation"
            for token, offsets in list(self.tokens.items()):
                if member.settled.get(token, "") is None:
                    del self.tokens[token]
                    for index, offset in offsets.items():
                        self.acknowledged[index] = max(offset, self.acknowledged.get(index, 0))

    def commit(self, member: Member) -> None:
        self.next_offset += 1
        self.tokens[member.commit(self.next_offset)] = dict.fromkeys(member.reads, self.next_offset)


def act(group: Group, watch: Watch, action: str, number: int, assignor: str) -> None:
    alive = [one for one in group.members if not one.is_gone]
    if action == "join":
        if len(alive) < 4:
            group.join(assignors=(assignor,))
        return
    if action == "grow":
        if group.partitions < 6:
            group.change_topics(group.partitions + 1)
        return
    if action == "kill_the_coordinator":
        group.succeed(2 if group.where and group.where.node_id == 1 else 1)
        return
    if not alive:
        return
    member = alive[number % len(alive)]
    if action == "leave":
        member.leave()
    elif action == "die":
        group.members.remove(member)
    elif action == "commit":
        watch.commit(member)
    else:
        member.is_cut_off = action == "cut_off" or (member.is_cut_off and action != "heal")
        member.is_busy = action == "be_busy" or (member.is_busy and action != "poll")


def is_at_rest(group: Group) -> bool:
    """All members are in one generation, and each partition is read."""
    alive = [one.core for one in group.members if not one.is_gone]
    owned = sorted(partition.partition for core in alive for partition in core.owned)
    is_settled = all(core.phase is Phase.JOINED and core.next_step() is None for core in alive)
    return (
        is_settled
        and len({core.generation_id for core in alive}) == 1
        and owned == [*range(group.partitions)]
    )


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@settings(max_examples=25, phases=[Part.explicit, Part.reuse, Part.generate, Part.shrink])
@given(faults=FAULTS)
def test_the_group_keeps_its_promises(assignor: str, faults: list[tuple[str, int, int]]) -> None:
    group = Group()
    watch = Watch(group)
    group.join(assignors=(assignor,))
    group.join(assignors=(assignor,))
    for action, number, then_ms in faults:
        act(group, watch, action, number, assignor)
        for _ in range(then_ms // STEP_MS):
            group.pass_ms(STEP_MS)
            watch.look()
    for member in group.members:
        member.is_cut_off = member.is_busy = False
    group.join(assignors=(assignor,))
    for _ in range(REST_MS // STEP_MS):
        group.pass_ms(STEP_MS)
        watch.look()
        if is_at_rest(group):
            break
    assert is_at_rest(group), [(one.core.phase, one.core.generation_id, one.reads) for one in group.members]
    committed = group.broker.committed()
    # a later commit may be there that had no answer
    assert {
        index: min(committed[index], offset) for index, offset in watch.acknowledged.items()
    } == watch.acknowledged
