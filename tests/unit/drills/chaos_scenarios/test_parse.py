"""Scenario files: what is understood, and the sentence about what is not."""

import pytest

from holdfast.drills.chaos_scenarios.command import KEYS, ready_files
from holdfast.drills.chaos_scenarios.model import (
    ConfigStep,
    FaultStep,
    Flush,
    HealStep,
    LoadStep,
    RandomPhase,
    StepsPhase,
    WaitStep,
    Wanted,
)
from holdfast.drills.chaos_scenarios.parse import BadScenario, parse
from holdfast.drills.chaos_scenarios.plan import plan_lines
from holdfast.drills.settings import ExpectedLoss, Settings

HEAD = """
name = "story"
says = "what happens"
seed = 7
[topic.t]
partitions = 2
flush = "every write"
[producer.p]
topic = "t"
[producer.weak]
topic = "t"
acks = "1"
records-per-second = 50
[consumer.c]
topic = "t"
"""
PHASE = """
[[phase]]
name = "it happens"
steps = [
    { fault = "pause", target = "leader of t-0", as = "old leader" },
    { fault = "partition", target = "old leader", how = "from-controllers", seconds = 2.5 },
    { wait = "isr of t-1 has 2" },
    { wait = "t-0 has no leader" },
    { wait = "3 s" },
    { load = "pauses" },
    { set = "flush.messages", to = "1", topic = "t" },
    { heal = "old leader" },
]
"""
EXPECT = """
[[expect]]
verdict = "nothing lost"
because = "of the rules"
elr = true
[[expect]]
verdict = "loss"
because = "of their absence"
"""
WHOLE = HEAD + PHASE + EXPECT


def test_a_whole_file_becomes_values() -> None:
    scenario = parse(WHOLE, KEYS)
    assert (scenario.name, scenario.seed, scenario.topics[0].flush) == ("story", 7, Flush.EVERY_WRITE)
    assert [(one.name, one.acks) for one in scenario.producers] == [("p", "all"), ("weak", "1")]
    (phase,) = scenario.phases
    assert isinstance(phase, StepsPhase)
    assert phase.steps == (
        FaultStep("pause", "leader of t-0", label="old leader"),
        FaultStep("partition", "old leader", 2.5, options={"how": "from-controllers"}),
        WaitStep(Wanted.ISR, "t", 1, 2),
        WaitStep(Wanted.NO_LEADER, "t", 0),
        WaitStep(Wanted.SECONDS, number=3),
        LoadStep(goes_on=False),
        ConfigStep("t", "flush.messages", "1"),
        HealStep("old leader"),
    )
    assert [row.loss for row in scenario.expectations] == [ExpectedLoss.NONE, ExpectedLoss.CERTAIN]
    assert scenario.faults == {"pause", "partition"}


def test_a_random_phase_has_weights_targets_and_a_duration() -> None:
    text = '[[phase]]\nname = "noise"\nseconds = 30\n'
    text += 'random = { kill = 3, pause = 1 }\ntargets = ["most leaders"]\n'
    (phase,) = parse(HEAD + text + EXPECT, KEYS).phases
    assert phase == RandomPhase("noise", 30, {"kill": 3, "pause": 1}, ("most leaders",))


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('name = "story"', "", "there is no `name`"),
        ("seed = 7", "sead = 7", "unknown key `sead`; did you mean 'seed'?"),
        (
            'fault = "pause"',
            'fault = "pauze"',
            "phase 1, step 1: unknown fault 'pauze'; did you mean 'pause'?",
        ),
        ('as = "old leader" }', 'labl = "x" }', "phase 1, step 1: unknown key `labl`"),
        ('how = "from-controllers"', "delay-ms = 3", "phase 1, step 2: unknown key `delay-ms`"),
        ('how = "from-controllers"', 'how = "sideways"', "phase 1, step 2: unknown how 'sideways'"),
        ('target = "old leader"', 'target = "old lader"', "did you mean 'old leader'?"),
        (
            'target = "leader of t-0"',
            'target = "leader"',
            "phase 1, step 1: no target 'leader'; possible: an id",
        ),
        ('heal = "old leader"', 'heal = "leader"', "phase 1, step 8: unknown label 'leader'"),
        ('wait = "3 s"', 'wait = "a while"', "phase 1, step 5: cannot wait for 'a while'"),
        ('wait = "3 s"', 'wait = "x-0 has a leader"', "unknown topic 'x'"),
        (
            'target = "leader of t-0"',
            'target = "leader of u-0"',
            "phase 1, step 1: unknown topic 'u'; possible: t",
        ),
        (
            'target = "leader of t-0"',
            'target = "replicas of t-2"',
            "step 1: there is no t-2: t has the partitions 0 to 1",
        ),
        ('how = "from-controllers"', 'other = "follower of u-0"', "phase 1, step 2: unknown topic 'u'"),
        (
            'fault = "pause", target = "leader of t-0"',
            'fault = "flip-bit", target = "leader of t-0", partition = "u-0"',
            "phase 1, step 1: unknown topic 'u'",
        ),
        (
            'fault = "pause", target = "leader of t-0"',
            'fault = "flip-bit", target = "leader of t-0", partition = "t"',
            "phase 1, step 1: `partition` is 't': expected a topic and a number, as t-0",
        ),
        (
            'fault = "pause", target = "leader of t-0"',
            'fault = "unread-fetches", target = "leader of t-0", topic = "u"',
            "phase 1, step 1: unknown topic 'u'",
        ),
        (
            'wait = "isr of t-1 has 2"',
            'wait = "isr of t-2 has 2"',
            "step 3: there is no t-2: t has the partitions 0 to 1",
        ),
        (
            'wait = "3 s"',
            'weit = "3 s"',
            "a step has one of fault, heal, wait, load, set; did you mean 'wait'?",
        ),
        ("seconds = 2.5", 'seconds = "2"', "phase 1, step 2: `seconds` is '2': expected a number of seconds"),
        ('topic = "t"\nacks', 'topic = "u"\nacks', "[producer.weak]: unknown topic 'u'"),
        ("partitions = 2", "partitions = true", "[topic.t]: `partitions` is True: expected a whole number"),
        ("partitions = 2", "partitions = 0", "`partitions` is 0: expected 1 or more"),
        (
            '"nothing lost"',
            '"nothing lots"',
            "expect 1: unknown verdict 'nothing lots'; did you mean 'nothing lost'?",
        ),
        ("[producer.p]", "[producers.p]", "unknown key `producers`; did you mean 'producer'?"),
        ("[[phase]]", "[[phase", "this is not TOML"),
        (EXPECT, "", "nothing is expected"),
        (PHASE, "", "there is no phase"),
    ],
)
def test_what_is_not_understood_is_refused_in_a_sentence(was: str, becomes: str, says: str) -> None:
    assert was in WHOLE
    with pytest.raises(BadScenario) as refused:
        parse(WHOLE.replace(was, becomes, 1), KEYS)
    assert says in str(refused.value)


def test_a_random_phase_takes_its_targets_of_topics_that_there_are() -> None:
    text = '[[phase]]\nname = "noise"\nseconds = 30\nrandom = { kill = 3 }\ntargets = ["leader of u-0"]\n'
    with pytest.raises(BadScenario, match="phase 1: unknown topic 'u'"):
        parse(HEAD + text + EXPECT, KEYS)


def test_a_file_without_acks_all_could_lose_nothing_and_is_refused() -> None:
    with pytest.raises(BadScenario, match="nothing could be lost"):
        parse(WHOLE.replace('[producer.p]\ntopic = "t"', '[producer.p]\ntopic = "t"\nacks = "0"'), KEYS)


@pytest.mark.parametrize("name", ready_files())
def test_each_ready_scenario_can_be_read_and_planned(name: str) -> None:
    scenario = parse(ready_files()[name].read_text(), KEYS)
    assert scenario.name == name
    settings = Settings(manager=scenario.manager, elr=scenario.elr, seed=scenario.seed)
    assert len(plan_lines(scenario, settings, "local")) > 6
