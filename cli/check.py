"""`holdfast check`: questions with a verdict, for monitoring and for scripts that restart brokers.

Exit codes are those of Nagios plugins, also for wrong usage: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

import json
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.durability.report import ClusterContext
from holdfast.cli.fresh_metadata import fresh_cluster
from holdfast.cli.options import INT32_MAX, CommandAnswer, bootstrap
from holdfast.controller.core.brokers.can_stop import Severity, StopAdvice, can_stop
from holdfast.protocol.errors import ErrorCode

_WORDS = {Severity.OK: "OK", Severity.WARN: "WARNING", Severity.CRIT: "CRITICAL", Severity.UNKNOWN: "UNKNOWN"}
#: Most names in the one line for Nagios; JSON has all of them.
_NAMES_MAX = 10


class _WrongUsage(click.UsageError):
    """2 would mean that the cluster is in danger."""

    exit_code = int(Severity.UNKNOWN)


class _CheckCommand(click.Command):
    """A check whose wrong usage gives no verdict."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _WrongUsage(error.format_message(), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # a file that it names, seen only now
            raise _WrongUsage(error.format_message(), ctx) from error


@click.group()
def command() -> None:
    """Answer a question with 0 OK, 1 WARNING, 2 CRITICAL or 3 UNKNOWN."""


@command.command("can-stop", cls=_CheckCommand, short_help="May this broker stop?")
@bootstrap
@click.option(
    "--broker", "broker_id", type=click.IntRange(0, INT32_MAX), required=True, metavar="N", help="Its id."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["nagios", "json", "prometheus"]),
    default="nagios",
    show_default=True,
    help="Form of the answer.",
)
@click.option(
    "--output", type=click.Choice(["text", "json"]), help="As with other commands: json is --format json."
)
def can_stop_command(broker_id: int, form: str, output: str | None, **given: Any) -> None:
    """Tell whether broker N can stop cleanly and every partition keeps a leader and min ISR members.

    OK: nothing is lost. WARNING: partitions would refuse acks=all writes, or do already and need the broker.
    CRITICAL: partitions would have no leader. UNKNOWN: the cluster does not answer or has no such broker.
    """
    answer = CommandAnswer("check-can-stop")
    verdict = StopAdvice(Severity.UNKNOWN, 0)

    async def act(session: AdminSession) -> None:
        nonlocal verdict
        cluster = await fresh_cluster(session)
        if all(row.broker_id != broker_id for row in cluster.brokers):
            code = ErrorCode.BROKER_ID_NOT_REGISTERED.name
            message = f"broker {broker_id} is not registered"
            answer.errors.append({"code": code, "message": message})
            return
        topics = await session.admin.describe_topics(timeout_ms=session.timeout_ms)
        verdict = can_stop(broker_id, topics, ClusterContext(cluster, {}).is_active)

    ask(given, answer, act)
    form = "json" if output == "json" else form
    click.echo(_FORMS[form](broker_id, verdict, [error["message"] for error in answer.errors]))
    raise SystemExit(int(verdict.severity))


def nagios(broker_id: int, verdict: StopAdvice, problems: Sequence[str]) -> str:
    """One line and its performance data."""
    findings = [
        f"{len(names)} {text}: {_names(names)}"
        for names, text in (
            (verdict.goes_offline, "would have no leader"),
            (verdict.loses_writes, "would refuse acks=all writes"),
            (verdict.needs_broker, "already lack replicas and need it"),
        )
        if names
    ]
    if verdict.severity is Severity.UNKNOWN:
        told = "; ".join(problems)
    elif verdict.severity is Severity.OK:
        told = f"broker {broker_id} can stop, its {verdict.hosted} partition(s) keep what they need"
    else:
        told = f"broker {broker_id} should not stop: {'; '.join(findings)}"
    line = f"CAN-STOP {_WORDS[verdict.severity]}: {told}"
    if verdict.severity is Severity.UNKNOWN:
        return line
    return (
        f"{line} | goes_offline={len(verdict.goes_offline)};;0 loses_writes={len(verdict.loses_writes)};0 "
        f"needs_broker={len(verdict.needs_broker)};0 hosted={verdict.hosted}"
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more


def as_json(broker_id: int, verdict: StopAdvice, problems: Sequence[str]) -> str:
    """The envelope of all commands; `ok` is the verdict's."""
    data = {
        "broker": broker_id,
        "verdict": _WORDS[verdict.severity],
        "hosted_partitions": verdict.hosted,
        "goes_offline": verdict.goes_offline,
        "loses_writes": verdict.loses_writes,
        "needs_broker": verdict.needs_broker,
    }
    return json.dumps(
        {
            "schema": "holdfast.check-can-stop/1",
            "ok": verdict.severity is Severity.OK,
            "data": data,
            "errors": [{"code": "UNKNOWN", "message": text} for text in problems],
        }
    )


def prometheus(broker_id: int, verdict: StopAdvice, problems: Sequence[str]) -> str:
    """Gauges for the text-file collector."""
    label = f'broker="{broker_id}"'
    effects = {
        "goes_offline": verdict.goes_offline,
        "loses_writes": verdict.loses_writes,
        "needs_broker": verdict.needs_broker,
    }
    partitions = (
        "# HELP holdfast_check_can_stop_partitions Partitions that a clean stop would harm.",
        "# TYPE holdfast_check_can_stop_partitions gauge",
        *(
            f'holdfast_check_can_stop_partitions{{{label},effect="{effect}"}} {len(names)}'
            for effect, names in effects.items()
        ),
    )
    return "\n".join(
        (
            "# HELP holdfast_check_can_stop 0 OK, 1 warning, 2 critical, 3 unknown.",
            "# TYPE holdfast_check_can_stop gauge",
            f"holdfast_check_can_stop{{{label}}} {int(verdict.severity)}",
            *(partitions if verdict.severity is not Severity.UNKNOWN else ()),
        )
    )


_FORMS = {"nagios": nagios, "json": as_json, "prometheus": prometheus}
