"""Random histories of a whole cluster against the real core: nothing breaks, R9 and D8 hold."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cli.datadriven import Command, ParseError
from cli.scenario_commands import Scenario
from controller.decisions import CauseKind, Decision
from controller.election import ElectionReason
from metadata.records import PartitionChangeRecord, decode_record

BROKERS = st.integers(1, 5).map(str)
PARTITIONS = st.sampled_from(["t-0", "t-1", "u-0"])
IDS = st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(lambda ids: f"({','.join(ids)})")


def words(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    """The parts with blanks between them."""
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map(" ".join)


def valued(key: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return values.map(lambda value: f"{key}={value}")


STRATEGIES = st.sampled_from(["", "Aggressive", "Balanced", "None"])
ENDS = st.integers(0, 9).map(str)
COMMANDS = st.one_of(
    words("fence", BROKERS),
    words("unfence", BROKERS),
    words("unfence", BROKERS),
    words("stop", BROKERS),
    words("register", BROKERS, st.sampled_from(["clean", "unclean"])),
    words("expire", BROKERS, BROKERS),
    words("alter", PARTITIONS, valued("isr", IDS), st.sampled_from(["recovering", "recovered"])),
    words("elect", st.sampled_from(["preferred", "unclean", "longest_log_aggressive"]), PARTITIONS),
    words("elect designated", PARTITIONS, valued("leader", BROKERS)),
    words("config topic t", valued("min.insync.replicas", st.sampled_from(["", "1", "2", "9"]))),
    words("config topic u", valued("unclean.recovery.strategy", STRATEGIES)),
    words("config cluster", valued("min.insync.replicas", st.sampled_from(["1", "2"]))),
    words("config cluster", valued("unclean.recovery.manager.enabled", st.sampled_from(["true", "false"]))),
    words("reassign", PARTITIONS, valued("replicas", IDS)),
    words("reassign", PARTITIONS, "cancel"),
    words("log_info", BROKERS, PARTITIONS, valued("last_epoch", ENDS), valued("end_offset", ENDS)),
    words("advance", st.sampled_from(["5000", "20000"])),
    words("feature", st.sampled_from(["elr=0", "elr=1"])),
    words("unregister", BROKERS),
    st.just("failover"),
)
START = (
    "broker 1 2 3 4 5",
    "partition t-0 replicas=(1,2,3) min_isr=2",
    "partition t-1 replicas=(3,4,5,1) min_isr=2",
    "partition u-0 replicas=(2,1,4) min_isr=3",
)


@given(st.sampled_from(["on", "off"]), st.lists(COMMANDS, min_size=10, max_size=40))
@settings(max_examples=25, deadline=None)
def test_random_histories_break_nothing(manager: str, commands: list[str]) -> None:
    """I-6, D7: `execute` also compares the image with a replay of the log after each command."""
    scenario = Scenario()
    for line in (f"cluster manager={manager} recovery_timeout_ms=10000", *START, *commands):
        try:
            scenario.execute(Command(line, "a history"))
        except ParseError:  # nobody leads, so nobody can send
            continue
        assert scenario.quorum.resignations == []
        image = scenario.quorum.image
        for topic in image.sorted_topics():
            for _, partition in topic.sorted_partitions():
                assert partition.broken_invariants() == []
                if partition.leader is not None:
                    assert image.is_active(partition.leader)
                elif image.elr_enabled:
                    assert not any(map(image.is_active, partition.electable)), "who is complete must lead"
    for entry in scenario.quorum.entries:
        record = decode_record(entry.value)
        if isinstance(record, PartitionChangeRecord):
            assert record.decision is not None
            decision = Decision.from_stored(record.decision)
            assert decision is not None
            assert decision.cause.kind is not CauseKind.UNSTATED
    is_always_on = manager == "on" and not any("manager.enabled=false" in line for line in commands)
    if is_always_on and "feature elr=0" not in commands:
        # R69: no log is trusted unseen
        assert scenario.quorum.core.counts.elections[ElectionReason.LAST_KNOWN_LEADER] == 0
