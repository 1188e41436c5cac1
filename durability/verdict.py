"""What the validator says in the end: an exit code, a table for people, an object for programs.

Pure: counts and samples in, words out. Owns the meaning of each class and the order of exit codes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.durability.rules import RULES
from holdfast.durability.rules.unexpected import NEVER_SENT

#: Most rows of one class that are shown, as many as Jepsen shows.
SAMPLES_MAX = 32
_TEXT_SAMPLES_MAX = 5

EXIT_GOOD, EXIT_LOST, EXIT_ANOMALY, EXIT_INCONCLUSIVE = 0, 4, 5, 6

#: Class -> what it means, for classes that must not occur.
FORBIDDEN = {name: rule.meaning for name, rule in RULES.items() if rule.is_forbidden}
#: Class -> what it means, for what may happen.
ALLOWED = {name: rule.meaning for name, rule in RULES.items() if not rule.is_forbidden}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one validation."""

    #: class -> exact number of rows that break its rule; the classes of FORBIDDEN and ALLOWED
    counts: Mapping[str, int]
    #: class -> at most SAMPLES_MAX rows
    samples: Mapping[str, Sequence[Mapping[str, Any]]]
    #: what was looked at, by name: sent, acked, ok, served, ...
    facts: Mapping[str, Any]
    #: why nothing can be concluded; empty when something can
    inconclusive: tuple[str, ...] = ()
    #: remarks for the reader
    notes: tuple[str, ...] = ()
    #: phase -> seconds it took
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: why this is no proof that all is well, although what was found is found
    doubts: tuple[str, ...] = ()
    #: lost records that were lost together, with their story; at most SAMPLES_MAX
    losses: tuple[Mapping[str, Any], ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it proves nothing, or not that all is well."""
        return (*self.inconclusive, *self.doubts)

    @property
    def exit_code(self) -> int:
        """6 nothing was judged, 4 lost, 5 any other forbidden class, 6 in doubt, 0: the first that fits."""
        if self.inconclusive:
            return EXIT_INCONCLUSIVE
        if self.counts.get("lost", 0):
            return EXIT_LOST
        if any(self.counts.get(name, 0) for name in FORBIDDEN):
            return EXIT_ANOMALY
        return EXIT_INCONCLUSIVE if self.doubts else EXIT_GOOD

    def as_json(self) -> dict[str, Any]:
        """The object of `--output json` (docs/tools.md)."""
        errors = [
            {"code": name.upper(), "count": self.counts[name], "message": text}
            for name, text in FORBIDDEN.items()
            if self.counts.get(name, 0)
        ]
        errors += [{"code": "INCONCLUSIVE", "message": reason} for reason in self.reasons]
        return {
            "schema": "holdfast.validate/1",
            "ok": self.exit_code == EXIT_GOOD,
            "data": {
                "verdict": self._words,
                "exit_code": self.exit_code,
                "facts": dict(self.facts),
                "counts": dict(self.counts),
                "samples": {name: list(rows) for name, rows in self.samples.items()},
                "losses": list(self.losses),
                "rules": [name for name in RULES if name in self.counts],
                "rules_not_run": [name for name in RULES if name not in self.counts],
                "doubts": list(self.doubts),
                "notes": list(self.notes),
                "seconds": dict(self.seconds),
            },
            "errors": errors,
        }

    def as_prometheus(self, finished_s: int) -> str:
        """Gauges for the text-file collector (docs/metrics.md); `finished_s` counts from 1970."""
        rows = {
            "exit_code": ("0 good, 4 lost, 5 another anomaly, 6 inconclusive.", {"": self.exit_code}),
            "acknowledged_records": ("Records that must be there.", {"": self.facts.get("acked", 0)}),
            "violations": (
                "Records, for diverged batches, that break a rule.",
                {f'{{class="{name}"}}': self.counts.get(name, 0) for name in FORBIDDEN},
            ),
            "finished_time_seconds": ("When the verdict was there.", {"": finished_s}),
        }
        lines = []
        for name, (about, values) in rows.items():
            metric = f"holdfast_validate_{name}"
            lines += [f"# HELP {metric} {about}", f"# TYPE {metric} gauge"]
            lines += [f"{metric}{labels} {value}" for labels, value in values.items()]
        return "\n".join(lines)

    def as_text(self) -> str:
        """The table for people."""
        facts = self.facts
        lines = []
        if facts:
            lines.append(
                f"{facts.get('sent', 0):,} records sent by {facts.get('producers', 0)} producers, "
                f"{facts.get('served', 0):,} served from {facts.get('partitions', 0)} partitions"
            )
            if "polled" in facts:
                lines.append(f"{facts['polled']:,} records polled by {facts['consumers']} consumers")
            lines += self._shares()
            lines += self._table()
        lines += self._losses()
        for name in (*FORBIDDEN, *ALLOWED):
            shown = list(self.samples.get(name, ()))[:_TEXT_SAMPLES_MAX]
            if name in FORBIDDEN and shown:
                lines.append(f"{name}, first {len(shown)} of {self.counts[name]:,}:")
                lines += [f"  {_sample_line(row, with_story=not self.losses)}" for row in shown]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"inconclusive: {reason}" for reason in self.reasons]
        if self.seconds:
            took = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in self.seconds.items())
            lines.append(f"seconds: {took}")
        lines.append(f"VERDICT: {self._words} (exit code {self.exit_code})")
        return "\n".join(lines)

    @property
    def _words(self) -> str:
        words = _VERDICTS[self.exit_code]
        return f"{words}, in order" if self.exit_code == EXIT_GOOD and "reordered" in self.counts else words

    def _shares(self) -> list[str]:
        """What part of everything the verdict is about."""
        facts = self.facts
        judged = []
        for what, part, whole in (
            ("sends", "sent_judged", "sent"),
            ("partitions", "partitions_judged", "partitions"),
            ("replicas", "replicas_seen", "replicas"),
            ("batches of replicas", "replica_batches", "replica_batches_seen"),
        ):
            if part in facts and facts.get(whole):
                judged.append(
                    f"{facts[part]:,} of {facts[whole]:,} {what} ({_percent(facts[part], facts[whole])})"
                )
        not_run = [name for name in RULES if name not in self.counts]
        rules = f"rules: {len(RULES) - len(not_run)} of {len(RULES)}"
        lines = [f"judged: {', '.join(judged)}"] if judged else []
        return [*lines, rules + (f"; not run: {', '.join(not_run)}" if not_run else "")]

    def _losses(self) -> list[str]:
        """What became of lost records, once for those that were lost together."""
        shown = self.losses[:_TEXT_SAMPLES_MAX]
        lines = [f"losses, first {len(shown)} of {self.facts['losses']:,}:"] if shown else []
        for loss in shown:
            first, last = loss["first_offset"], loss["last_offset"]
            where = f"offset {first}" if first == last else f"offsets {first} to {last}"
            records = "1 record" if loss["records"] == 1 else f"{loss['records']:,} records"
            story = loss["story"] or "nothing is known of it"
            lines.append(f"  {loss['topic']}-{loss['partition']} {where}, {records}: {story}")
        return lines

    def _table(self) -> list[str]:
        facts = self.facts
        rows: list[tuple[str, int | None, str]] = [
            ("acknowledged", facts.get("acked", 0), "acks=all, answered: must be there"),
            ("ok", facts.get("ok", 0), "at its offset, byte for byte"),
        ]
        rows += [(name, self.counts.get(name), text) for name, text in FORBIDDEN.items()]
        rows += [(name, self.counts.get(name), text + " (allowed)") for name, text in ALLOWED.items()]
        shown = [(name, "-" if count is None else f"{count:,}", text) for name, count, text in rows]
        widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
        rule = "-" * (widths[0] + widths[1] + 4 + max(len(row[2]) for row in shown))
        body = [f"{name:<{widths[0]}}  {count:>{widths[1]}}  {text}" for name, count, text in shown]
        return [rule, *body, rule]


_VERDICTS = {
    EXIT_GOOD: "good: everything acknowledged is there, once",
    EXIT_LOST: "LOST: acknowledged records are gone",
    EXIT_ANOMALY: "ANOMALY: nothing acknowledged is gone, but the log is not what was sent",
    EXIT_INCONCLUSIVE: "INCONCLUSIVE: nothing was proved",
}


def inconclusive(reason: str, **known: Any) -> Verdict:
    """A verdict that proves nothing, because of `reason`."""
    return Verdict(counts={}, samples={}, facts={}, inconclusive=(reason,), **known)


#: Classes of records that another part of the ledger may know -> what they are.
_MAY_BE_KNOWN = {"unexpected": "records of the log", "polled_unsent": "polled records"}


def of_a_part_of_the_ledger(verdict: Verdict, never_sent: Mapping[str, int] | None = None) -> Verdict:
    """The verdict on a ledger of which something was not read: a record that it does not know may be one of
    those, so none is called never sent. What else is unexpected or polled_unsent is sure all the same.
    `never_sent`: how many of each class were called so; None: all may be."""
    counts, samples, doubts = dict(verdict.counts), dict(verdict.samples), []
    for name, words in _MAY_BE_KNOWN.items():
        count = counts.get(name, 0)
        unknown = count if never_sent is None else never_sent.get(name, 0)
        if not unknown:
            continue
        doubts.append(f"{unknown} {words} are not of what was read of the ledger: they may be of the rest")
        rows = [row for row in samples.pop(name, ()) if not row["detail"].endswith(NEVER_SENT)]
        counts[name] = count - unknown
        if counts[name]:
            samples[name] = rows
        else:
            del counts[name]
    return replace(verdict, counts=counts, samples=samples, doubts=(*verdict.doubts, *doubts))


def _percent(part: int, whole: int) -> str:
    """Never 100 % of what is not whole."""
    return f"{int(1000 * part / whole) / 10:g} %"


def _sample_line(row: Mapping[str, Any], *, with_story: bool) -> str:
    place = f"{row['topic']}-{row['partition']}"
    at = "" if row.get("offset") is None else f" offset {row['offset']}"
    sender = "" if row.get("producer") is None else f" {row['producer']} record {row['pseq']}"
    if row.get("value_sha256") is not None:
        sender = f" value_sha256 {row['value_sha256']}..."
    names = ("story", "command") if with_story else ("command",)
    more = "".join(f"; {row[name]}" for name in names if row.get(name))
    return f"{place}{at}{sender}: {row['detail']}{more}"
