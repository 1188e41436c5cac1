"""Random histories of hundreds of steps over all commands: nothing breaks, in any order.

After each command: the core did not resign, its images agree with a replay of the log, the invariants of the
protocol hold (I-2, I-5, I-6, I-14, I-15, A-3, A-10 to A-13), the second opinion agrees, and what is printed
follows the grammar of scenario files. A history that breaks something is shortened and printed as a scenario.
"""

import re
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings

from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERED, RECOVERING
from holdfast.protocol.errors import ErrorCode
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import Command, ParseError
from tests.cases import slow
from tests.unit.controller import histories
from tests.unit.controller.test_second_opinion import Pair

STEPS = 300
#: 8 with the default profile, 400 for `make fuzz`
SEEDS = range(max(8, settings().max_examples // 12))

_IDS = r"\((\d+(,\d+)*)?\)"
_STATE = re.compile(
    rf"[a-z]+-\d+ leader=(none|\d+)@\d+ isr={_IDS} elr={_IDS} last_known_elr={_IDS} "
    rf"last_known_leader=(none|\d+) min_isr=\d+ pe=\d+( recovering)?( adding={_IDS})?( removing={_IDS})?"
)
_RECOVERY = re.compile(rf"[a-z]+-\d+ recovery: (wait {_IDS}|ask {_IDS} also {_IDS}|elected \d+|cancelled)")
_ERROR = re.compile(r"([a-z]+-\d+ )?error=([A-Z_]+)")
_DELETED = re.compile(r"[a-z]+ deleted")
#: commands after which I-14 waits until the ISR has reached min ISR again (D14)
_UNPROMISING = ("unregister", "reassign", "elect", "feature", "config", "partition", "log_info", "delete")

Row = tuple[str, int]
Rows = dict[Row, PartitionRegistration]


def rows_of(image: MetadataImage) -> Rows:
    return {
        (topic.name, index): partition
        for topic in image.sorted_topics()
        for index, partition in topic.sorted_partitions()
    }


class Watch:
    """Looks at one history, step by step."""

    def __init__(self) -> None:
        self.pair = Pair()
        self._before: Rows = {}
        self._unclean_elections = 0
        #: partitions as they were put; no event has looked yet whether a replica could lead them
        self._put: Rows = {}
        #: (topic id, index, leader epoch) -> the only leader it may ever have (I-15)
        self._leaders: dict[tuple[bytes, int, int], int | None] = {}
        #: partitions for which I-14 holds now
        self._is_promised: dict[Row, bool] = {}

    def do(self, line: str) -> None:
        printed = self.pair.do(line)
        if printed is None or line.startswith("cluster"):
            return
        quorum = self.pair.real.quorum
        assert quorum.resignations == [], quorum.resignations
        assert quorum.core.counts.replay_violations == 0
        check_grammar(line, printed)
        image = quorum.image
        after = rows_of(image)
        counted = quorum.core.counts.elections
        unclean_elections = sum(count for reason, count in counted.items() if reason.is_unclean)
        is_clean = unclean_elections == self._unclean_elections
        self._unclean_elections = unclean_elections
        for row, partition in after.items():
            if line.startswith(f"partition {row[0]}-{row[1]} "):
                self._put[row] = partition
            self._check_state(image, row, partition)
            before = self._before.get(row)
            if before is not None and not line.startswith(("partition", "delete")):
                check_step(line, before, partition, is_clean and image.elr_enabled)
            self._check_promise(line, row, before, partition)
        self._before = after

    def _check_state(self, image: MetadataImage, row: Row, partition: PartitionRegistration) -> None:
        assert partition.broken_invariants() == []  # I-6
        topic = image.topic(row[0])
        assert topic is not None
        key = (topic.topic_id, row[1], partition.leader_epoch)
        assert self._leaders.setdefault(key, partition.leader) == partition.leader, (
            "I-15: one leader an epoch"
        )
        if partition.leader is not None:
            assert image.is_active(partition.leader), "I-2, A-13: only who is active leads"
        if image.elr_enabled:
            # without ELR, and after an upgrade from it, the last member of an ISR stays in it (F7)
            if partition.leader is not None:
                assert all(map(image.is_active, partition.isr)), "I-5: no fenced broker in an ISR"
            elif partition != self._put.get(row):
                assert not any(map(image.is_active, partition.electable)), "L-9: who is complete leads"
        else:
            assert partition.elr == partition.last_known_elr == ()
            assert partition.last_known_leader is None

    def _check_promise(
        self, line: str, row: Row, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        """I-14: with ISR and ELR empty the seats of at least min ISR replicas are known."""
        if len(after.isr) >= after.min_isr:
            self._is_promised[row] = True
        elif before is None or line.startswith(_UNPROMISING) or after.leader_recovery_state == RECOVERING:
            if before is None or before != after or line.startswith(("feature", "config")):
                self._is_promised[row] = False
        if not self.pair.real.quorum.image.elr_enabled:
            self._is_promised[row] = False
        if self._is_promised.get(row) and not after.isr and not after.elr:
            assert len(after.last_known_elr) >= after.min_isr, "I-14"


def check_step(
    line: str, before: PartitionRegistration, after: PartitionRegistration, keeps_sets: bool
) -> None:
    """The action properties; `keeps_sets` where nothing on the way may shrink ELR and last known ELR."""
    command = line.split()[0]
    assert after.leader_epoch >= before.leader_epoch
    assert (after.partition_epoch == before.partition_epoch) == (after == before), "R2, R3"
    assert after.partition_epoch >= before.partition_epoch
    if after.leader != before.leader:
        assert after.leader_epoch > before.leader_epoch, "A-11"
    joined = set(after.isr) - set(before.isr)
    if joined and command != "alter":
        assert len(after.isr) == 1, "A-3: without its leader's word an ISR begins anew"
        if after.leader_recovery_state == RECOVERED and command in ("fence", "unfence", "stop"):
            assert joined <= set(before.elr), "A-13: a clean election takes who was eligible"
    lost = set(before.isr + before.elr) - set(after.isr + after.elr)
    is_one_step = command in ("fence", "stop") and after.partition_epoch == before.partition_epoch + 1
    if is_one_step and len(after.isr) < after.min_isr == before.min_isr and keeps_sets:
        assert not lost, "A-9, A-10: who was complete stays eligible"
    forgotten = set(before.last_known_elr) - set(after.last_known_elr + after.isr + after.elr)
    if forgotten and len(after.isr) < after.min_isr and keeps_sets:
        assert command in ("unregister", "reassign", "alter"), "A-12: seats are remembered below min ISR"


def check_grammar(line: str, printed: list[str]) -> None:
    """State lines, then errors and deletions, then the recovery manager's; each kind sorted; `ok` alone."""
    assert printed
    if printed == ["ok"]:
        return
    kinds = []
    for text in printed:
        error = _ERROR.fullmatch(text)
        if _STATE.fullmatch(text):
            kinds.append(0)
        elif error is not None or _DELETED.fullmatch(text):
            assert error is None or error[2] in ErrorCode.__members__
            kinds.append(1)
        else:
            assert _RECOVERY.fullmatch(text), text
            kinds.append(2)
    assert kinds == sorted(kinds), f"{line} printed {printed}"
    for kind in (0, 2):
        names = [text.split()[0] for text, its in zip(printed, kinds, strict=True) if its == kind]
        assert names == sorted(names)
    states = [text.split()[0] for text, its in zip(printed, kinds, strict=True) if its == 0]
    assert len(states) == len(set(states)), "one final state a partition"


def problem_of(lines: list[str]) -> str | None:
    """What goes wrong in a history, or None."""
    watch = Watch()
    for line in lines:
        try:
            watch.do(line)
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            return f"{type(error).__name__} {str(error)[:40]}"
    return None


def tell(lines: list[str], is_start: Callable[[str], bool]) -> str:
    """The history without what does not matter, to be put into a file."""
    problem = problem_of(lines)
    start = [line for line in lines if is_start(line)]
    rest = [line for line in lines if not is_start(line)]
    short = histories.shortened(rest, lambda fewer: problem_of([*start, *fewer]) == problem)
    return "\n".join([f"{problem}:", *start, *short])


@pytest.mark.parametrize("seed", [SEEDS[0], *slow(*SEEDS[1:])])
def test_random_history_breaks_nothing(seed: int) -> None:
    random, watch, lines = Random(seed), Watch(), []
    start = list(histories.starts(random))
    for at in range(len(start) + STEPS):
        line = start[at] if at < len(start) else histories.next_line(watch.pair.real, random)
        lines.append(line)
        try:
            watch.do(line)
        except Exception:
            print(tell(lines, start.__contains__))
            raise


@pytest.mark.slow
def test_manager_trusts_no_log_unseen() -> None:
    """R69, B1: while logs are compared no replica is elected only because it led last, or stands first."""
    compared = 0
    for seed in range(4):
        random, scenario = Random(seed), Scenario()
        start = ["cluster recovery_timeout_ms=3000", *list(histories.starts(random))[1:]]
        for at in range(len(start) + STEPS):
            line = start[at] if at < len(start) else histories.next_line(scenario, random)
            if line.startswith(("feature", "elect unclean")) or "manager.enabled" in line:
                continue
            try:
                scenario.execute(Command(line, "a history"))
            except ParseError:
                continue
        elections = scenario.quorum.core.counts.elections
        assert elections[ElectionReason.LAST_KNOWN_LEADER] == 0
        assert elections[ElectionReason.UNCLEAN_RANDOM] == 0
        compared += elections[ElectionReason.LONGEST_LOG]
    assert compared > 0, "these histories are no test of it"
