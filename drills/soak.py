"""`holdfast chaos soak --minutes M --seed S`: random faults within the budget, Spark's verdict.

The budget is f = min ISR - 1 = 1: at any moment at most one broker is down, silent, cut off or damaged,
beside at most one of three controllers; the next fault waits until every replica is in sync again. Everything
acknowledged with acks=all must be there in the end, and no node may end that was not asked to. Over budget,
two or three brokers are hit at once, and records may be lost.
"""

import random
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from typing import Any

import click

from holdfast.cli.extras import require
from holdfast.drills.chaos_report import OVER_BUDGET, WITHIN_BUDGET, ChaosReport
from holdfast.drills.fault_kinds import Undoable
from holdfast.drills.ground import ground_for
from holdfast.drills.live_judge import LiveJudge
from holdfast.drills.load import DrillLoad
from holdfast.drills.outcome import DrillResult
from holdfast.drills.playing import Wishes, end, options, perform
from holdfast.drills.session import Session
from holdfast.drills.soak_faults import MENUS, Course, Entry
from holdfast.localcluster.faults import damage, processes
from holdfast.localcluster.faults.fault import FaultRefused
from holdfast.localcluster.faults.places import NoSuchFile
from holdfast.localcluster.faults.targets import Targets

MIN_ISR = 2
TOPICS = ("soak-1", "soak-2", "soak-3")
#: However long a soak is, so much is written at most: ledgers, logs and Spark's work stay bounded.
RECORDS_MAX_PER_TOPIC = 200_000
_RECORDS_PER_SECOND_MAX = 200
_CONTROLLER_SHARE = 0.3
#: how long a fault lasts at most while the load gets no answers
_FAULT_S = 4.0
#: Sizes of segments: small, so that there are closed ones soon; not so small that a long soak has thousands.
_SEGMENT_BYTES_LEAST, _SEGMENTS_MAX = 64 << 10, 400
_RECORD_BYTES = 200


def records_per_second(minutes: float) -> int:
    """Of each topic, in a soak of so many minutes."""
    return max(1, min(_RECORDS_PER_SECOND_MAX, int(RECORDS_MAX_PER_TOPIC / max(1.0, minutes * 60))))


def topic_configs(minutes: float) -> dict[str, str]:
    """Of each topic, in a soak of so many minutes."""
    written = records_per_second(minutes) * minutes * 60 * _RECORD_BYTES
    segment = max(_SEGMENT_BYTES_LEAST, int(written / _SEGMENTS_MAX))
    return {"min.insync.replicas": str(MIN_ISR), "segment.bytes": str(segment)}


class Soak:
    """One run: faults until the time is over."""

    def __init__(
        self, session: Session, seed: int, *, minutes: float, is_over_budget: bool, is_followed: bool
    ) -> None:
        self._session = session
        self._minutes = minutes
        self._is_over_budget = is_over_budget
        self._judge: LiveJudge | None = None
        if is_followed:
            folder = session.ledger.with_name("live")
            self._judge = LiveJudge(folder, session.ledger, session.ground.nodes.bootstrap_servers)
        self._chance = random.Random(f"{seed}:soak")
        self._seed = seed
        self._menu, self._of_controllers = MENUS[session.ground.driver]

    def run(self) -> None:
        """Raises: ClusterError when the cluster does not recover."""
        session = self._session
        for topic in TOPICS:
            session.make_topic(topic, 1, topic_configs(self._minutes))
        for topic in TOPICS:
            session.add_load(
                DrillLoad(
                    session.ground.nodes.bootstrap_servers,
                    session.ledger,
                    topic,
                    name=f"all-{topic}",
                    records_per_second=records_per_second(self._minutes),
                )
            )
            session.add_reader(f"reader-{topic}", topic)
        with self._judge or nullcontext():
            self._break_things()

    def _break_things(self) -> None:
        session = self._session
        began = time.monotonic()
        with closing(Targets(session.ground.nodes, self._seed)) as targets:
            course = Course(session.ground, targets, self._chance, TOPICS)
            while (passed := (time.monotonic() - began) / 60) < self._minutes:
                self._round(course)
                if self._judge is not None and self._judge.kill_if_old():
                    session.say("the judge that follows live was killed and begun again")
                session.progress(f"{passed:.1f} of {self._minutes:g} min")
            if session.report.faults["flip-bit"]:
                self._replace_disk(course)
        if self._judge is not None:
            session.say("the judge that follows live ends")
            # else there is more to read with each micro-batch, on the same machine
            for load in session.loads:
                load.slow_down()
            verdict = session.report.live = self._judge.end()
            if verdict.complaint is not None:
                session.complain(verdict.complaint)

    def _replace_disk(self, course: Course) -> None:
        """Flipped bits that no reader has met are still in the files, and would be found as corrupt."""
        self._session.say(f"{course.damaged.name} gets an empty disk, as its files may have damage")
        faults = [
            processes.Kill(course.cluster, course.damaged),
            damage.WipeDisk(course.cluster, course.damaged),
        ]
        try:
            for fault in faults:
                fault.apply()
        finally:
            self._session.heal(faults)
        self._session.come_back()

    def _round(self, course: Course) -> None:
        """One fault on a broker, sometimes beside one on a controller; then everything heals."""
        session = self._session
        before = session.ground.lives()
        faults: list[Undoable] = []
        try:
            faults += self._make(course, self._menu)
            if self._is_over_budget:
                for _ in range(self._chance.choice((1, 2))):
                    faults += self._make(course, self._menu)
            if self._chance.random() < _CONTROLLER_SHARE:
                faults += self._make(course, self._of_controllers)
            for load in session.loads:  # one may stand still: then the fault just lasts
                self._wait_for_records(load)
            session.check_alive(before, faults)
        finally:
            session.heal(faults)  # a node is started before its damage would be put back: it stays damaged
        session.come_back()

    def _make(self, course: Course, menu: Mapping[str, Entry]) -> list[Undoable]:
        """Draw a fault and make it; those steps of it that were done."""
        name = self._chance.choices(list(menu), [entry.weight for entry in menu.values()])[0]
        made: list[Undoable] = []
        try:
            for fault in menu[name].make(course):
                made.append(fault)
                self._session.apply(fault)
        except FaultRefused as error:
            self._session.report.refused[name] = str(error)
        except NoSuchFile as error:  # the log is too short yet, or has no such file
            self._session.say(str(error))
        else:
            self._session.report.faults[name] += 1
        return made

    def _wait_for_records(self, load: DrillLoad) -> None:
        target = load.acked + self._chance.randrange(50, 400)
        deadline = time.monotonic() + _FAULT_S
        while load.acked < target and time.monotonic() < deadline:
            time.sleep(0.02)


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=5.0, show_default=True)
@click.option("--seed", type=click.IntRange(0), help="Fixes which faults are drawn; printed at the start.")
@click.option(
    "--over-budget", is_flag=True, help="Two or three brokers at once: records may be lost, and are named."
)
@click.option(
    "--live", is_flag=True, help="`validate --follow` runs beside it, and is killed and begun again."
)
@options
def command(minutes: float, seed: int | None, over_budget: bool, live: bool, **given: Any) -> None:
    """Random faults within the budget on a real cluster, then Spark's verdict. Exit 0: all is there."""
    if live and over_budget:
        raise click.UsageError("--live goes without --over-budget: what is lost then is no failure")
    if live:
        require("spark")
    seed = random.SystemRandom().randrange(1 << 16) if seed is None else seed
    wishes = Wishes(**given)
    report = ChaosReport(seed, expectation=OVER_BUDGET if over_budget else WITHIN_BUDGET)

    def run() -> DrillResult:
        return perform(
            wishes,
            report,
            {"minutes": minutes, "over budget": "yes" if over_budget else "no"},
            lambda folder: ground_for(wishes.driver, folder),
            lambda session: Soak(
                session, seed, minutes=minutes, is_over_budget=over_budget, is_followed=live
            ).run(),
        )

    end(run)
