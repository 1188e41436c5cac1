"""Plays a scenario in a session: its load, its phases step by step, its random faults."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Literal

from holdfast.client.admin_configs import FeatureUpdate, Resource
from holdfast.drills.chaos_scenarios.model import (
    PATIENCE_S,
    ConfigStep,
    FaultStep,
    Flush,
    HealStep,
    LoadStep,
    RandomPhase,
    Scenario,
    Step,
    StepsPhase,
    TopicSpec,
    WaitStep,
    Wanted,
)
from holdfast.drills.chaos_scenarios.plan import draws
from holdfast.drills.fault_kinds import Given, Undoable
from holdfast.drills.load import DrillLoad
from holdfast.drills.session import Session
from holdfast.drills.settings import Settings
from holdfast.drills.stage import ELR_FEATURE, MANAGER, STRATEGY
from holdfast.localcluster.faults.fault import FaultRefused
from holdfast.localcluster.faults.places import NoSuchFile
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.health import probe
from holdfast.localcluster.nodes import ClusterError, Node

_POLL_S = 0.1
_HTTP_S = 2.0
_ACKS: dict[str, Literal["all", 1, 0]] = {"all": "all", "1": 1, "0": 0}


class Player:
    """One run of a scenario."""

    def __init__(self, session: Session, scenario: Scenario, settings: Settings) -> None:
        self._session = session
        self._scenario = scenario
        self._settings = settings
        self._cluster = session.ground.nodes
        #: {label: its faults}; unnamed ones have a number
        self._open: dict[str, list[Undoable]] = {}
        self._labels: dict[str, tuple[Node, ...]] = {}
        #: {label: the fault in words}
        self._words: dict[str, str] = {}
        #: {label: when it is healed}
        self._ends: dict[str, float] = {}
        self._count = 0

    def run(self) -> None:
        """Everything that the file says. Raises: ClusterError when a step cannot be done or waits in vain."""
        self._configure()
        for topic in self._scenario.topics:
            self._session.make_topic(topic.name, topic.partitions, self._configs(topic))
        self._begin_load()
        with closing(Targets(self._cluster, self._settings.seed)) as targets:
            try:
                for number, phase in enumerate(self._scenario.phases, 1):
                    self._session.say(f"{number}. {phase.name}")
                    if isinstance(phase, RandomPhase):
                        self._play_random(phase, number, targets)
                    else:
                        self._play(phase, targets)
            finally:
                self._heal("all")
        for load in self._session.loads:
            load.go_on()
        self._session.come_back()

    def _configure(self) -> None:
        ask, settings = self._session.look.ask, self._settings
        if not settings.elr:
            ask(lambda admin: admin.update_features({ELR_FEATURE: FeatureUpdate(0, allow_downgrade=True)}))
        value = "true" if settings.manager else "false"
        self._set(Resource.cluster(), MANAGER, value)

    def _set(self, resource: Resource, key: str, value: str) -> None:
        refusal = self._session.look.ask(lambda admin: admin.alter_configs({resource: {key: value}}))[
            resource
        ]
        if refusal is not None:
            raise ClusterError(f"{key}={value}: {refusal}")

    def _configs(self, topic: TopicSpec) -> dict[str, str]:
        return {
            "min.insync.replicas": str(topic.min_isr),
            STRATEGY: self._settings.strategy,
            **({"flush.messages": "1"} if topic.flush is Flush.EVERY_WRITE else {}),
            **topic.configs,
        }

    def _begin_load(self) -> None:
        partitions = {topic.name: topic.partitions for topic in self._scenario.topics}
        for one in self._scenario.producers:
            self._session.add_load(
                DrillLoad(
                    self._cluster.bootstrap_servers,
                    self._session.ledger,
                    one.topic,
                    name=one.name,
                    acks=_ACKS[one.acks],
                    records_per_second=one.records_per_second,
                    partitions=partitions[one.topic],
                )
            )
        for reader in self._scenario.consumers:
            self._session.add_reader(reader.name, reader.topic)

    # --- phases ----------------------------------------------------------------------------------------

    def _play(self, phase: StepsPhase, targets: Targets) -> None:
        for _ in range(phase.repeat):
            for step in phase.steps:
                self._heal_ended()
                self._do(step, targets)

    def _play_random(self, phase: RandomPhase, number: int, targets: Targets) -> None:
        began = time.monotonic()
        for drawn in draws(phase, self._settings.seed, number):
            passed = time.monotonic() - began
            if passed >= phase.seconds:
                return
            self._session.progress(f"{passed:.0f} of {phase.seconds:g} s")
            before = self._session.ground.lives()
            label = self._make(FaultStep(drawn.fault, drawn.target), targets, drawn.seed, is_random=True)
            under = [fault for faults in self._open.values() for fault in faults]
            end = time.monotonic() + drawn.seconds
            while time.monotonic() < end:
                self._pass_time()
            if label:
                self._session.check_alive(before, under)
                self._heal(label)
            self._wait_in_sync()

    # --- steps -----------------------------------------------------------------------------------------

    def _do(self, step: Step, targets: Targets) -> None:
        match step:
            case FaultStep():
                self._count += 1
                self._make(step, targets, self._settings.seed * 1000 + self._count)
            case HealStep(label):
                self._session.say(str(step))
                self._heal(label)
            case WaitStep():
                self._session.say(str(step))
                self._wait(step)
            case LoadStep(goes_on):
                self._session.say(str(step))
                for load in self._session.loads:
                    load.go_on() if goes_on else load.hold()
            case ConfigStep(topic, key, value):
                self._session.say(str(step))
                self._set(Resource.topic(topic), key, value)

    def _make(self, step: FaultStep, targets: Targets, seed: int, *, is_random: bool = False) -> str:
        """Make the fault; what it is called, empty for a random one that is not possible now."""
        label = step.label or f"fault {len(self._open)}-{seed}"
        try:
            nodes = self._nodes(step.target, targets)
            given = Given(
                seed=seed,
                other=self._nodes(step.other, targets) if step.other else (),
                topic_id=targets.topic_id(step.options["topic"]) if "topic" in step.options else b"",
                **{
                    key.replace("-", "_"): value
                    for key, value in step.options.items()
                    if key not in ("other", "topic")
                },
            )
            faults = list(self._session.ground.make(step.fault, nodes, given))
            made = self._open.setdefault(label, [])
            for fault in faults:
                made.append(fault)
                self._session.apply(fault)
        except (FaultRefused, NoSuchFile) as error:
            if not is_random:
                raise
            self._session.report.refused[step.fault] = str(error)
            self._heal(label)
            return ""
        self._session.report.faults[step.fault] += 1
        if step.label:
            self._labels[step.label] = nodes
        self._words[label] = f"{step.fault} on {', '.join(node.name for node in nodes)}"
        if step.seconds is not None:
            self._ends[label] = time.monotonic() + step.seconds
        return label

    def _nodes(self, words: str, targets: Targets) -> tuple[Node, ...]:
        """Who it is now; a moment without a leader is waited for. Raises: ClusterError."""
        if words in self._labels:
            return self._labels[words]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return targets.find(words)
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
                self._pass_time()

    def _heal(self, label: str) -> None:
        """In the order in which they were made: a killed node starts before its damage would be put back."""
        for name in list(self._open) if label == "all" else [label]:
            self._ends.pop(name, None)
            self._session.heal(self._open.pop(name, []))

    def _heal_ended(self) -> None:
        now = time.monotonic()
        for label in [label for label, end in self._ends.items() if now >= end]:
            self._session.say(f"over: {self._words[label]}")
            self._heal(label)

    def _pass_time(self) -> None:
        time.sleep(_POLL_S)
        self._heal_ended()

    # --- waiting ---------------------------------------------------------------------------------------

    def _wait(self, step: WaitStep) -> None:
        """Faults whose time is over are healed meanwhile. Raises: ClusterError."""
        if step.wanted is Wanted.IN_SYNC:
            self._wait_in_sync()
            return
        condition = self._condition(step)
        limit = step.number + 1 if step.wanted is Wanted.SECONDS else PATIENCE_S
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"it was in vain for {limit:.0f} s to {step}")
            self._pass_time()

    def _wait_in_sync(self) -> None:
        """First every fault that has an end is over, then everything comes back by itself."""
        while self._ends:
            self._pass_time()
        self._session.come_back()

    def _condition(self, step: WaitStep) -> Callable[[], bool]:
        match step.wanted:
            case Wanted.SECONDS:
                end = time.monotonic() + step.number
                return lambda: time.monotonic() >= end
            case Wanted.RECORDS:
                target = self._session.acked + step.number
                return lambda: self._session.acked >= target
            case Wanted.LEADER:
                return lambda: self._state(step).get("leader") is not None
            case Wanted.NO_LEADER:
                return lambda: self._state(step).get("leader", "unknown") is None
            case _:
                return lambda: len(self._state(step).get("isr", ())) == step.number

    def _state(self, step: WaitStep) -> Mapping[str, Any]:
        """The partition as the newest answer of a controller has it; without one nothing holds.

        Over HTTP, as controllers in containers have no other port here, and know it when no broker runs.
        """
        newest: Mapping[str, Any] = {}
        for node in self._cluster.controllers:
            path = f"/v1/partitions/{step.topic}/{step.partition}"
            answered, text = probe(self._cluster.host, node.http_port, path, _HTTP_S)
            if answered:
                found = json.loads(text)
                if found["partition_epoch"] >= newest.get("partition_epoch", -1):
                    newest = found
        return newest
