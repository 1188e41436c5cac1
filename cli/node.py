"""`holdfast broker|controller --config FILE`: one node in the foreground."""

import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import click

from holdfast.cli.options import read_properties


class NodeConfig(Protocol):
    """What every node's configuration tells."""

    @property
    def node_id(self) -> int: ...


C = TypeVar("C", bound=NodeConfig)

config_option = click.option(
    "--config",
    "config_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="server.properties; HOLDFAST_NODE_ID and the like in the environment win over it.",
)
unsynced_option = click.option(
    "--unsynced",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Keep a journal there of what is not synced, for `holdfast cluster power-loss`.",
)


@click.command()
@config_option
@unsynced_option
def broker(config_file: str, unsynced: str | None) -> None:
    """Run a broker until SIGTERM (clean stop) or a failure (exit 1)."""
    from holdfast.broker.__main__ import run
    from holdfast.broker.core.config import BrokerConfig

    sys.exit(_serve("broker", config_file, unsynced, BrokerConfig.from_properties, run))


@click.command()
@config_option
@unsynced_option
def controller(config_file: str, unsynced: str | None) -> None:
    """Run a controller until SIGTERM or a failure (exit 1)."""
    from holdfast.controller.__main__ import run
    from holdfast.controller.core.config import ControllerConfig

    sys.exit(_serve("controller", config_file, unsynced, ControllerConfig.from_properties, run))


def _serve(
    role: str,
    config_file: str,
    unsynced: str | None,
    from_properties: Callable[[Mapping[str, str], Mapping[str, str]], tuple[C, list[str]]],
    run: Callable[[C, Any, Any], Coroutine[Any, Any, int]],
) -> int:
    """Read the configuration, set up the log, run the node; its exit code."""
    from holdfast.metadata.configs import ConfigError
    from holdfast.runtime import logs
    from holdfast.runtime.api import Runtime
    from holdfast.runtime.real import machine

    logs.configure(role)
    log = logging.getLogger(f"holdfast.{role}")
    try:
        config, warnings = from_properties(read_properties(config_file), os.environ)
    except ConfigError as error:
        log.error("%s", error)
        return 1
    logs.configure(f"{role}-{config.node_id}")
    for warning in warnings:
        log.warning("%s", warning)

    async def start(runtime: Runtime) -> int:
        return await run(config, runtime, machine.StopSignals())

    machine.keep_collections_short()
    return machine.run(start, unsynced=unsynced)
