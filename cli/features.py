"""`holdfast features describe|upgrade|downgrade`: levels of features, in Kafka's lines.

`eligible.leader.replicas.version` 1 is KIP-966's ELR, 0 is without. `metadata.version` names the records that
controllers write.
"""

from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import (
    CommandAnswer,
    as_with_the_commands,
    before_the_command,
    bootstrap,
    output,
    whole_number,
)
from holdfast.client.admin_configs import FeatureUpdate
from holdfast.client.core.errors import ClientError

_LEVEL_MAX = (1 << 15) - 1


@click.group()
@before_the_command
def command(**given: Any) -> None:
    """Show, raise and lower the levels of features."""
    as_with_the_commands(given)


@command.command(short_help="Show supported and finalized levels.")
@bootstrap
@output
def describe(**given: Any) -> None:
    """Show what is supported and what is in force; the epoch is the offset of the metadata."""
    answer = CommandAnswer("features-describe")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        found = await session.admin.describe_features(timeout_ms=session.timeout_ms)
        answer.data = {
            "metadata_offset": found.metadata_offset,
            "features": [
                {
                    "feature": row.name,
                    "supported_min_version": row.min_supported,
                    "supported_max_version": row.max_supported,
                    "finalized_version_level": row.finalized_level,
                }
                for row in found.features
            ],
        }
        text.extend(
            f"Feature: {row.name}\tSupportedMinVersion: {row.min_supported}"
            f"\tSupportedMaxVersion: {row.max_supported}\tFinalizedVersionLevel: {row.finalized_level}"
            f"\tEpoch: {found.metadata_offset}"
            for row in found.features
        )

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _updates(values: tuple[str, ...]) -> dict[str, int]:
    """{feature: level} of `name=level` items. Raises: click.UsageError."""
    found: dict[str, int] = {}
    for value in values:
        name, separator, level = (part.strip() for part in value.partition("="))
        if not separator or not name or whole_number(level, _LEVEL_MAX) is None:
            raise click.UsageError(f"--feature {value}: expected name=level, such as x.version=1")
        if name in found:
            raise click.UsageError(f"--feature {name} is given twice")
        found[name] = int(level)
    return found


feature_option = click.option(
    "--feature", "features", multiple=True, required=True, metavar="NAME=LEVEL", help="A level to finalize."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only ask whether it could be done.")


@command.command(short_help="Raise levels.")
@bootstrap
@feature_option
@dry_run_option
@output
def upgrade(features: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Finalize higher levels."""
    _finalize("upgrade", _updates(features), dry_run, given)


@command.command(short_help="Lower levels.")
@bootstrap
@feature_option
@dry_run_option
@click.option("--unsafe", is_flag=True, help="Accepted; there is no level whose metadata would be lost.")
@output
def downgrade(features: tuple[str, ...], dry_run: bool, unsafe: bool, **given: Any) -> None:
    """Finalize lower levels."""
    _finalize("downgrade", _updates(features), dry_run, given)


def _finalize(verb: str, levels: dict[str, int], dry_run: bool, given: dict[str, Any]) -> None:
    """Ask for all levels at once: all of them become final, or none."""
    answer = CommandAnswer(f"features-{verb}")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        try:
            found = await session.admin.describe_features(timeout_ms=session.timeout_ms)
            present = {row.name: row.finalized_level for row in found.features}
            for name, level in levels.items():
                wrong = (
                    present.get(name, level) < level
                    if verb == "downgrade"
                    else present.get(name, level) > level
                )
                if wrong:
                    other = "upgrade" if verb == "downgrade" else "downgrade"
                    answer.errors.append(
                        {
                            "code": "INVALID_UPDATE_VERSION",
                            "feature": name,
                            "message": f"{name} is at {present[name]}; `features {other}` leads to {level}",
                        }
                    )
            if not answer.errors:
                updates = {
                    name: FeatureUpdate(level, allow_downgrade=verb == "downgrade")
                    for name, level in levels.items()
                }
                await session.admin.update_features(updates, dry_run, timeout_ms=session.timeout_ms)
        except ClientError as error:
            answer.refused(error)

    ask(given, answer, act)
    answer.data = {"features": levels, "dry_run": dry_run}
    if answer.errors:
        reasons = "; ".join(error["message"] for error in answer.errors)
        text += [f"Could not {verb} {name} to {level}. {reasons}" for name, level in levels.items()]
        answer.summary = f"{len(levels)} out of {len(levels)} operation(s) failed."
    else:
        done = f"can be {verb}d" if dry_run else f"was {verb}d"
        text += [f"{name} {done} to {level}." for name, level in levels.items()]
    answer.finish(given["output"], "\n".join(text))
