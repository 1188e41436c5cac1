"""What a soak or a scenario did and found, for people, for scripts, and as an exit code. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.drills.outcome import DrillEvidence, DrillResult, judge
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.durability.verdict import EXIT_GOOD, FORBIDDEN, SAMPLES_MAX, Verdict

WITHIN_BUDGET = Expectation(ExpectedLoss.NONE, "one lossy broker at a time is within min ISR - 1")
OVER_BUDGET = Expectation(ExpectedLoss.POSSIBLE, "more brokers lose their tails than min ISR - 1 survives")


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    """What `validate --follow` beside the run said in the end."""

    exit_code: int
    #: of `validate --output json`; empty when it said nothing
    data: Mapping[str, Any]
    #: how often it was killed
    kills: int

    @property
    def complaint(self) -> str | None:
        """Why it is not good; None when it is."""
        if self.exit_code == EXIT_GOOD:
            return None
        counts = {name: count for name, count in self.data.get("counts", {}).items() if count}
        said = "; ".join([*(f"{count} {name}" for name, count in counts.items()), *self._doubts])
        return f"followed live: {said or f'it ended with code {self.exit_code} and no verdict'}"

    @property
    def _doubts(self) -> list[str]:
        return list(self.data.get("doubts", ()))

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        facts = self.data.get("facts", {})
        seen = {name: facts.get(name, 0) for name in ("acked", "ok")}
        return {"exit_code": self.exit_code, "kills": self.kills, **seen, "doubts": self._doubts}

    def line(self) -> str:
        """For people."""
        facts = self.data.get("facts", {})
        seen = f"{facts.get('ok', 0):,} of {facts.get('acked', 0):,} acknowledged records in their place"
        times = "once" if self.kills == 1 else f"{self.kills} times"
        return f"followed live: {seen}; the judge was killed {times}"


@dataclass
class ChaosReport:
    """Filled while the run goes on."""

    seed: int
    what: str = "holdfast chaos soak"
    #: of the JSON for scripts
    schema: str = "holdfast.soak/1"
    expectation: Expectation = WITHIN_BUDGET
    seconds: float = 0.0
    #: how often each fault was made
    faults: Counter[str] = field(default_factory=Counter)
    #: faults that this machine refuses, with the reason
    refused: dict[str, str] = field(default_factory=dict)
    #: what was not as it must be, beside the verdict
    complaints: list[str] = field(default_factory=list)
    acked: int = 0
    #: records that consumers have read and checked
    checked: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    live: LiveVerdict | None = None
    #: the first lost records of each topic, in words
    named: list[str] = field(default_factory=list)
    #: why there is no verdict; empty: there is one, or will be
    unjudged: str = ""
    #: the verdict was not wanted: its absence is no failure
    is_unjudged_on_purpose: bool = False

    @property
    def verdict(self) -> Verdict | None:
        """Of all topics together; None without one."""
        return merged(self.verdicts) if self.verdicts else None

    @property
    def result(self) -> DrillResult:
        """The verdict of Spark first, then the complaints."""
        return self._judged[0]

    @property
    def _judged(self) -> tuple[DrillResult, str]:
        verdict = self.verdict
        if verdict is None:
            if self.complaints:
                return DrillResult.BROKEN, self.complaints[0]
            if self.is_unjudged_on_purpose:
                return DrillResult.EXPECTED, "no node and no consumer complained; not judged"
            return DrillResult.INCONCLUSIVE, self.unjudged or "there is no verdict"
        evidence = DrillEvidence(
            verdict_code=verdict.exit_code,
            counts=verdict.counts,
            facts=verdict.facts,
            complaints=tuple(self.complaints),
            doubts=verdict.reasons,
        )
        return judge(self.expectation, evidence)

    @property
    def lost(self) -> int:
        """Acknowledged records (acks=all) that are gone."""
        return sum(verdict.counts.get("lost", 0) for verdict in self.verdicts.values())

    def lines(self) -> list[str]:
        """For people."""
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        lines = [f"{sum(self.faults.values())} faults in {self.seconds:.0f} s: {counts or 'none'}"]
        lines += [f"refused: {name}: {reason}" for name, reason in sorted(self.refused.items())]
        lines += [f"not as it must be: {complaint}" for complaint in self.complaints]
        lost = f"{self.lost:,} of them are lost" if self.verdicts else f"not judged: {self.unjudged}"
        found = self.verdict.counts if self.verdict is not None else {}
        weakly = found.get("lost_weakly_acked", 0)
        allowed = f"; {weakly:,} acknowledged with acks=0 or 1 are gone (allowed)" if weakly else ""
        lines.append(f"{self.acked:,} records were acknowledged, {lost}{allowed}")
        lines += [f"lost: {record}" for record in self.named]
        lines += [
            f"{found[name]:,} {name}: {text}"
            for name, text in FORBIDDEN.items()
            if name != "lost" and found.get(name, 0)
        ]
        if self.verdict is not None:
            lines += [f"note: {note}" for note in self.verdict.notes]
            lines += [f"inconclusive: {why}" for why in self.verdict.reasons]
        if self.checked:
            lines.append(f"{self.checked:,} records were read and checked meanwhile")
        if self.live is not None:
            lines.append(self.live.line())
        result, reason = self._judged
        lines.append(f"expected: {self.expectation.loss.value} ({self.expectation.rule})")
        lines.append(f"RESULT: {result.name}: {reason or result.value}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "schema": self.schema,
            "ok": self.result is DrillResult.EXPECTED,
            "data": {
                "what": self.what,
                "result": self.result.name,
                "seed": self.seed,
                "seconds": round(self.seconds, 1),
                "faults": dict(sorted(self.faults.items())),
                "refused": self.refused,
                "acked": self.acked,
                "checked": self.checked,
                "expected": self.expectation.loss.value,
                "judged": bool(self.verdicts),
                "lost": self.lost if self.verdicts else None,
                "named": self.named,
                "counts": {topic: dict(verdict.counts) for topic, verdict in self.verdicts.items()},
                "doubts": {topic: verdict.reasons for topic, verdict in self.verdicts.items()},
                "notes": {topic: verdict.notes for topic, verdict in self.verdicts.items()},
                "live": None if self.live is None else self.live.as_json(),
            },
            "errors": [{"code": "COMPLAINT", "message": text} for text in self.complaints],
        }


def merged(verdicts: Mapping[str, Verdict]) -> Verdict:
    """One verdict on several topics: sums, and the samples, notes and doubts of all; that nothing could be
    judged of some is a doubt about all of them. At least one verdict."""
    counts: Counter[str] = Counter()
    facts: dict[str, Any] = {}
    samples: dict[str, list[Mapping[str, Any]]] = {}
    for verdict in verdicts.values():
        counts.update(verdict.counts)
        for name, value in verdict.facts.items():
            is_number = isinstance(value, int) and isinstance(facts.get(name, 0), int)
            facts[name] = facts.get(name, 0) + value if is_number else value
        for name, rows in verdict.samples.items():
            samples.setdefault(name, []).extend(rows)
    whole = Verdict(
        counts=dict(counts),
        samples={name: rows[:SAMPLES_MAX] for name, rows in samples.items()},
        facts=facts,
        notes=tuple(dict.fromkeys(note for one in verdicts.values() for note in one.notes)),
    )
    doubts = tuple(dict.fromkeys(why for one in verdicts.values() for why in one.reasons))
    if all(one.inconclusive for one in verdicts.values()):
        return replace(whole, inconclusive=doubts)
    return replace(whole, doubts=doubts)
