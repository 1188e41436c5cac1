"""The report of a run, or of runs to compare: one HTML file that opens without a network.

Owns the words around the pictures. It says what was seen, what of it was lost and why, and what was not
checked; it judges nothing by itself.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from holdfast.report.history import Row
from holdfast.report.picture import ALLOWED, figure

#: Elections and lost records that are written out; the rest is counted.
ELECTIONS_MAX = 200
LOST_MAX = 32

_STYLE = """
:root { color-scheme: light dark; --page:#fbfaf7; --ink:#1d2329; --soft:#5d6670; --line:#d5d8dc; --good:#14694a; --bad:#b3261e; --warn:#8a5300 }
@media (prefers-color-scheme: dark) { :root { --page:#14181c; --ink:#e6e9ec; --soft:#a0a9b2; --line:#39424b; --good:#5fd0a0; --bad:#ff8a80; --warn:#f0b35a } }
* { box-sizing: border-box } body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui,sans-serif }
main { max-width:1280px; margin:0 auto; padding:20px } h1 { font-size:26px; line-height:1.25; margin:0 0 4px; text-wrap:balance }
.good { color:var(--good) } .bad { color:var(--bad) } .warn { color:var(--warn) } h2 { font-size:18px; margin:32px 0 8px } h3 { font-size:16px; margin:24px 0 4px }
p.soft, small, .soft { color:var(--soft) } table { border-collapse:collapse } th,td { text-align:left; padding:4px 16px 4px 0; border-bottom:1px solid var(--line); vertical-align:top }
th { font-weight:normal; color:var(--soft) } td.number { text-align:right; font-variant-numeric:tabular-nums } .wide { overflow-x:auto }
details { border-bottom:1px solid var(--line); padding:4px 0 } summary { cursor:pointer } li { margin:2px 0 }
"""  # noqa: E501


def page(runs: Sequence[Sequence[Row]], titles: Sequence[str] = ()) -> str:
    """The page of one run, or of several one below the other, with `titles` that tell them apart."""
    first = runs[0][0]
    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Holdfast: {escape(first['what'])}</title><style>{_STYLE}</style></head><body><main>",
    ]  # fmt: skip
    if len(runs) > 1:
        parts.append(_comparison(runs, titles))
    for number, rows in enumerate(runs):
        title = titles[number] if number < len(titles) else ""
        parts += _run(rows, title, is_first=number == 0, is_alone=len(runs) == 1)
    parts.append("</main></body></html>")
    return "\n".join(parts)


def sentence(rows: Sequence[Row]) -> tuple[str, str]:
    """("good", "warn" or "bad", what the verdict says in a sentence)."""
    verdict = _verdict(rows)
    if verdict is None:
        return "warn", "No verdict: the records were not compared"
    if verdict.get("says"):
        return ("bad" if verdict["exit_code"] else "good"), verdict["says"]
    counts, facts = verdict["counts"], verdict["facts"]
    acked, lost = facts.get("acked", 0), counts.get("lost", 0)
    if verdict["exit_code"] == _INCONCLUSIVE:
        return "warn", f"Inconclusive: {next(iter(verdict['reasons']), 'nothing was proved')}"
    if lost:
        return "bad", f"{lost:,} of {acked:,} acknowledged records were lost"
    broken = {name: number for name, number in counts.items() if number and name not in ALLOWED}
    if broken:
        words = ", ".join(f"{number:,} {name}" for name, number in broken.items())
        return "bad", f"None of {acked:,} acknowledged records was lost, but: {words}"
    return "good", f"Nothing acknowledged was lost: {acked:,} records, {_count(_faults(rows), 'fault')}"


#: The exit code of a verdict that proves nothing, or only that nothing was found (docs/validate.md).
_INCONCLUSIVE = 6


def _run(rows: Sequence[Row], title: str, *, is_first: bool, is_alone: bool) -> list[str]:
    start = rows[0]
    kind, text = sentence(rows)
    settings = ", ".join(f"{key} {value}" for key, value in start["settings"].items())
    head = "h1" if is_alone else "h2"
    drawn = figure(rows).to_html(
        full_html=False, include_plotlyjs=is_first, config={"responsive": True, "displayModeBar": False}
    )
    return [
        f'<{head} class="{kind}">{escape(f"{title}: " if title else "")}{escape(text)}</{head}>',
        f'<p class="soft">{escape(start["what"])}, seed {start["seed"]}, {escape(start["started"])}'
        f"{escape(f', {settings}' if settings else '')}</p>",
        '<p class="soft">Shaded: while a fault lasted. A hatched leader: its ISR is below min ISR, so '
        "acks=all waits. A diamond: a record that is lost, or breaks another rule, when it was acknowledged. "
        "Point at anything for more; drag to zoom.</p>",
        f'<div class="wide">{drawn}</div>',
        *_lost(rows), *_unchecked(rows), *_fault_list(rows), *_elections(rows),
    ]  # fmt: skip


def _comparison(runs: Sequence[Sequence[Row]], titles: Sequence[str]) -> str:
    heads = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = {
        "acknowledged": [_fact(rows, "acked") for rows in runs],
        "lost": [_counted(rows, "lost") for rows in runs],
        "unclean elections": [f"{sum(1 for row in _elected(rows) if row['is_unclean']):,}" for rows in runs],
        "elections": [f"{len(_elected(rows)):,}" for rows in runs],
    }
    body = "".join(
        f"<tr><th>{name}</th>{''.join(f'<td class=number>{value}</td>' for value in values)}</tr>"
        for name, values in lines.items()
    )
    words = "; ".join(f"{title}: {sentence(rows)[1]}" for title, rows in zip(titles, runs, strict=True))
    return f"<h1>{escape(words)}</h1><table><tr><th></th>{heads}</tr>{body}</table>"


def _lost(rows: Sequence[Row]) -> list[str]:
    verdict = _verdict(rows)
    if verdict is None:
        return []
    shown = [(name, number) for name, number in verdict["counts"].items() if number]
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td class=number>{number:,}</td></tr>" for name, number in shown
    )
    parts = [f"<h2>What {escape(verdict.get('judge', 'Spark'))} found</h2>"]
    facts = verdict["facts"]
    judged = [f"{facts[key]:,} {word}" for key, word in _JUDGED.items() if facts.get(key)]
    parts.append(f"<p>{escape(', '.join(judged))}.</p>" if judged else "")
    parts.append(f"<table>{lines}</table>" if lines else "<p>No record breaks a rule.</p>")
    for name, samples in verdict["samples"].items():
        if samples and name not in ALLOWED:
            shown_samples = samples[:LOST_MAX]
            items = "".join(f"<li>{escape(_sample(sample))}</li>" for sample in shown_samples)
            summary = f"{escape(name)}, first {len(shown_samples)}"
            parts.append(f"<details><summary>{summary}</summary><ul>{items}</ul></details>")
    return parts


_JUDGED = {
    "sent": "records sent",
    "acked": "acknowledged with acks=all",
    "served": "served",
    "replica_batches": "batches of replicas compared",
}


def _unchecked(rows: Sequence[Row]) -> list[str]:
    """What a reader might believe was checked and was not."""
    verdict = _verdict(rows)
    if verdict is None:
        return ["<h2>Not checked</h2><p>Whether what was acknowledged is still there.</p>"]
    missing = []
    if not verdict["facts"].get("replica_batches") and "judge" not in verdict:
        missing.append("Replicas were not compared with each other: only what leaders serve was read.")
    if not _faults(rows):
        missing.append("Nothing was made to fail, so this shows only that a quiet cluster loses nothing.")
    if not any(row["kind"] == "partition" for row in rows):
        missing.append("The metadata log was not read: elections are not shown.")
    missing += [*verdict["reasons"], *verdict.get("notes", ())]
    items = "".join(f"<li>{escape(text)}</li>" for text in missing)
    return [
        "<h2>Not checked</h2>",
        f"<ul>{items}</ul>" if items else "<p>Nothing that this report knows of.</p>",
    ]


def _fault_list(rows: Sequence[Row]) -> list[str]:
    faults = [row for row in rows if row["kind"] == "fault"]
    if not faults:
        return []
    lines = "".join(
        f"<tr><td class=number>{row['t_ms'] / 1000:.1f} s</td><td>{escape(row['text'])}</td>"
        f"<td>{_lasted(row)}</td></tr>"
        for row in faults
    )
    kinds = ", ".join(f"{name} {number}" for name, number in Counter(row["fault"] for row in faults).items())
    return [
        f"<h2>Faults <small>{escape(kinds)}</small></h2>",
        f'<div class="wide"><table><tr><th>at</th><th>what</th><th>lasted</th></tr>{lines}</table></div>',
    ]


def _lasted(fault: Row) -> str:
    until = fault.get("until_ms")
    return "to the end" if until is None else f"{(until - fault['t_ms']) / 1000:.1f} s"


def _elections(rows: Sequence[Row]) -> list[str]:
    elected = _elected(rows)
    if not elected:
        return []
    parts = [f"<h2>Elections <small>{len(elected):,}</small></h2>"]
    for row in elected[:ELECTIONS_MAX]:
        leader = "no leader" if row["leader"] is None else f"broker {row['leader']} leads"
        unclean = ' <span class="bad">unclean</span>' if row["is_unclean"] else ""
        why = "".join(f"<li>{escape(_without_codes(text))}</li>" for text in row["why"])
        parts.append(
            f"<details><summary>{row['t_ms'] / 1000:.2f} s: {escape(row['topic'])}-{row['partition']}, "
            f"{leader}, epoch {row['leader_epoch']}{unclean}</summary><ul>{why}</ul></details>"
        )
    if len(elected) > ELECTIONS_MAX:
        parts.append(f"<p>and {len(elected) - ELECTIONS_MAX:,} more, in the history.</p>")
    return parts


def _without_codes(text: str) -> str:
    return text.removeprefix("Why: ")


def _sample(sample: Row) -> str:
    shown = {
        key: value for key, value in sample.items() if value is not None and key not in ("t_ms", "story")
    }
    told = ", ".join(f"{key} {value}" for key, value in shown.items())
    at = "" if sample.get("t_ms") is None else f" at {sample['t_ms'] / 1000:.2f} s"
    return f"{told}{at}" + (f": {sample['story']}" if sample.get("story") else "")


def _verdict(rows: Iterable[Row]) -> Row | None:
    return next((row for row in rows if row["kind"] == "verdict"), None)


def _elected(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] == "partition" and row["is_election"]]


def _faults(rows: Iterable[Row]) -> int:
    return sum(row["kind"] == "fault" for row in rows)


def _fact(rows: Iterable[Row], name: str) -> str:
    verdict = _verdict(rows)
    return "-" if verdict is None else f"{verdict['facts'].get(name, 0):,}"


def _counted(rows: Iterable[Row], name: str) -> str:
    verdict = _verdict(rows)
    return "-" if verdict is None else f"{verdict['counts'].get(name, 0):,}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
