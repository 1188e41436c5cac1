"""Long random histories of a cluster as lines of scenario files, and how to shorten one that breaks.

The commands look at the state to be worth their while: most AlterPartitions come from the leader and name
members that may be in sync, most answers come while logs are compared. Some are nonsense on purpose.
"""

from collections.abc import Callable, Iterator
from random import Random

from holdfast.controller.core.events import AskForLogs
from holdfast.metadata.partition import PartitionRegistration, ids_text
from holdfast.scenario.controller_commands import Scenario

BROKERS = range(1, 7)
#: topic-index, replicas; min ISR is the topic's
PARTITIONS = {
    "t-0": (1, 2, 3),
    "t-1": (3, 4, 5, 1),
    "u-0": (2, 1, 4),
    "u-1": (5, 6),
    "v-0": (4,),
}
MIN_ISR = {"t": 2, "u": 3, "v": 1}
ERRORS = ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "BROKER_NOT_AVAILABLE")


def starts(random: Random) -> Iterator[str]:
    """The first lines of a history."""
    words = ["cluster", f"elr={random.choice(['on', 'on', 'on', 'off'])}"]
    words.append(f"manager={random.choice(['on', 'on', 'off'])}")
    words.append(f"recovery_timeout_ms={random.choice([3_000, 20_000, 300_000])}")
    if random.random() < 0.3:
        words.append(f"strategy={random.choice(['Balanced', 'Aggressive', 'None'])}")
    if random.random() < 0.3:
        words.append(f"unclean={random.choice(['true', 'false'])}")
    yield " ".join(words)
    brokers = sorted(random.sample(BROKERS, random.choice([4, 5, 6, 6, 6])))
    yield "broker " + " ".join(map(str, brokers))
    for name in PARTITIONS:
        yield _put_line(name, brokers, "elr=on" in words, random)


def _put_line(name: str, ready: list[int], elr: bool, random: Random) -> str:
    """Put a partition into some sound state; half of the time all its replicas are in sync."""
    replicas, least = PARTITIONS[name], MIN_ISR[name[0]]
    line = f"partition {name} replicas={ids_text(replicas)} min_isr={least}"
    there = [r for r in replicas if r in ready]
    if len(there) == len(replicas) and random.random() < 0.5:
        return line
    epochs = f" leader_epoch={random.randint(0, 9)} partition_epoch={random.randint(0, 9)}"
    isr = sorted(random.sample(there, random.randint(0, len(there))))
    if not isr and not elr:
        # without ELR the last member stays, though it is fenced
        absent = [r for r in replicas if r not in ready]
        return f"{line} leader=none isr=({absent[0]})" if absent else line
    line += f" isr={ids_text(isr)} leader={random.choice(isr) if isr else 'none'}{epochs}"
    if elr and len(isr) < min(least, len(replicas)):
        others = [r for r in replicas if r not in isr]
        eligible = _some(random, others)
        line += f" elr={ids_text(eligible)}"
        line += f" last_known_elr={ids_text(_some(random, [r for r in others if r not in eligible]))}"
    if not isr and random.random() < 0.7:
        line += f" last_known_leader={random.choice(replicas)}"
    if len(isr) == 1 and random.random() < 0.3:
        line += " recovering"
    return line


def next_line(scenario: Scenario, random: Random) -> str:
    """One more line, given what has become of the cluster."""
    return random.choice(_WEIGHTED)(scenario, random)


def shortened(lines: list[str], breaks: Callable[[list[str]], bool], tries: int = 400) -> list[str]:
    """A shorter history that breaks the same thing; after that many tries it is short enough."""
    step = len(lines) // 2
    while step and tries:
        at = 0
        while at < len(lines) and tries:
            tries -= 1
            fewer = lines[:at] + lines[at + step :]
            if breaks(fewer):
                lines = fewer
            else:
                at += step
        step //= 2
    return lines


def _broker(random: Random) -> int:
    return random.choice(BROKERS) if random.random() < 0.97 else 9


def _partition(scenario: Scenario, random: Random) -> tuple[str, PartitionRegistration | None]:
    name = random.choice(list(PARTITIONS)) if random.random() < 0.97 else random.choice(["x-0", "t-9"])
    topic, _, index = name.rpartition("-")
    image = scenario.quorum.image.topic(topic)
    return name, None if image is None else image.partitions.get(int(index))


def _some(random: Random, ids: list[int]) -> list[int]:
    return random.sample(ids, random.randint(0, len(ids)))


def _fence(scenario: Scenario, random: Random) -> str:
    return (
        f"fence {_broker(random)}" if random.random() < 0.9 else f"fence {_broker(random)} {_broker(random)}"
    )


def _expire(scenario: Scenario, random: Random) -> str:
    return "expire " + " ".join(map(str, random.sample(BROKERS, random.randint(1, 4))))


def _unfence(scenario: Scenario, random: Random) -> str:
    return f"unfence {_broker(random)}"


def _stop(scenario: Scenario, random: Random) -> str:
    return f"stop {_broker(random)}"


def _register(scenario: Scenario, random: Random) -> str:
    broker = _broker(random)
    if broker not in scenario.quorum.image.brokers:
        return f"register {broker} {random.choice(['clean', 'unclean', 'first'])}"
    return f"register {broker} {random.choice(['clean', 'unclean', 'unclean'])}"


def _unregister(scenario: Scenario, random: Random) -> str:
    return f"unregister {_broker(random)}" if random.random() < 0.4 else _register(scenario, random)


def _alter(scenario: Scenario, random: Random) -> str:
    name, partition = _partition(scenario, random)
    if partition is None or partition.leader is None:
        return f"alter {name} isr=(1,2) from={_broker(random)}"
    image = scenario.quorum.image
    others = [r for r in partition.replicas if r != partition.leader]
    if random.random() < 0.9:
        others = [r for r in others if image.is_active(r)]
    isr = [partition.leader, *_some(random, others)]
    if partition.is_reassigning and random.random() < 0.5:
        isr = [partition.leader, *(r for r in others if image.is_active(r))]
    line = f"alter {name} isr={ids_text(isr)}"
    if random.random() > 0.15:
        return line
    return line + random.choice(
        [
            f" from={_broker(random)}",
            f" leader_epoch={partition.leader_epoch + random.choice([-1, 0, 1])}",
            f" partition_epoch={partition.partition_epoch + random.choice([-1, 0, 1])}",
            " broker_epoch=stale",
            f" stale=({random.choice(isr)})",
            " recovering",
            " recovered",
        ]
    )


def _elect(scenario: Scenario, random: Random) -> str:
    name, _ = _partition(scenario, random)
    kind = random.choice(
        ["preferred", "preferred", "unclean", "designated", "longest_log_aggressive", "longest_log_balanced"]
    )
    line = f"elect {kind} {name}"
    if kind == "designated" and random.random() < 0.95:
        line += f" leader={_broker(random)}"
    return line


def _config(scenario: Scenario, random: Random) -> str:
    key, values = random.choice(
        [
            ("min.insync.replicas", ["", "1", "2", "3", "9", "0", "many"]),
            ("min.insync.replicas", ["", "1", "2", "3"]),
            ("unclean.recovery.strategy", ["", "Aggressive", "Balanced", "None", "proactive", "bold"]),
            ("unclean.leader.election.enable", ["", "true", "false", "maybe"]),
            ("unclean.recovery.manager.enabled", ["", "true", "false"]),
        ]
    )
    owner = random.choice(["cluster", "topic t", "topic u", "topic v", "topic x"])
    if key == "unclean.recovery.manager.enabled" and random.random() < 0.9:
        owner = "cluster"
    return f"config {owner} {key}={random.choice(values)}"


def _reassign(scenario: Scenario, random: Random) -> str:
    name, partition = _partition(scenario, random)
    if random.random() < 0.2:
        return f"reassign {name} cancel"
    target = random.sample(BROKERS, random.randint(1, 4))
    if partition is not None and random.random() < 0.2:
        target = list(partition.original_replicas or partition.replicas)
        random.shuffle(target)
    if random.random() < 0.05:
        target.append(random.choice([9, target[0]]))
    return f"reassign {name} replicas={ids_text(target)}"


def _log_info(scenario: Scenario, random: Random) -> str:
    asked = [
        (f"{stated.topic_name}-{stated.partition_index}", replica)
        for stated in scenario.quorum.stated
        if isinstance(stated.statement, AskForLogs)
        for replica in stated.statement.must + stated.statement.others
    ]
    name, partition = _partition(scenario, random)
    if asked and random.random() < 0.5:
        name, broker = random.choice(asked)
    elif partition is not None and random.random() < 0.9:
        broker = random.choice(partition.replicas)
    else:
        broker = _broker(random)
    line = f"log_info {broker} {name} last_epoch={random.randint(0, 3)} end_offset={random.randint(0, 9)}"
    if random.random() > 0.1:
        return line
    return line + random.choice(
        [
            " broker_epoch=stale",
            " leader_epoch=stale",
            " leader_epoch=ahead",
            f" error={random.choice(ERRORS)}",
        ]
    )


def _advance(scenario: Scenario, random: Random) -> str:
    return f"advance {random.choice([1_000, 2_500, 10_000, 40_000, 300_000])}"


def _failover(scenario: Scenario, random: Random) -> str:
    return "failover"


def _feature(scenario: Scenario, random: Random) -> str:
    return f"feature elr={random.choice([0, 1, 1, 1])}" if random.random() < 0.9 else "feature elr=2"


def _delete(scenario: Scenario, random: Random) -> str:
    topic = random.choice(["t", "u", "v", "x"])
    return f"delete {topic}" if random.random() < 0.3 else _show(scenario, random)


def _show(scenario: Scenario, random: Random) -> str:
    return f"show {_partition(scenario, random)[0]}"


def _put(scenario: Scenario, random: Random) -> str:
    """A partition that was deleted comes again."""
    for name, replicas in PARTITIONS.items():
        topic, _, index = name.rpartition("-")
        image = scenario.quorum.image.topic(topic)
        if image is None or int(index) not in image.partitions:
            cluster = scenario.quorum.image
            return _put_line(name, list(filter(cluster.is_active, replicas)), cluster.elr_enabled, random)
    return _unfence(scenario, random)


_WEIGHTED: list[Callable[[Scenario, Random], str]] = [
    *[_fence] * 8,
    *[_expire] * 3,
    *[_unfence] * 16,
    *[_stop] * 4,
    *[_register] * 8,
    _unregister,
    *[_alter] * 24,
    *[_elect] * 5,
    *[_config] * 6,
    *[_reassign] * 7,
    *[_log_info] * 14,
    *[_advance] * 3,
    *[_failover] * 2,
    _feature,
    _delete,
    _put,
    _show,
]
