"""`holdfast broker|controller --config FILE`: one node in the foreground."""

import os
import sys

import click

from cli.options import read_properties

config_option = click.option(
    "--config",
    "config_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="server.properties; HOLDFAST_NODE_ID and the like in the environment win over it.",
)


@click.command()
@config_option
def broker(config_file: str) -> None:
    """Run a broker until SIGTERM (clean stop) or a failure (exit 1)."""
    from broker.__main__ import main

    sys.exit(main(read_properties(config_file), os.environ))


@click.command()
@config_option
def controller(config_file: str) -> None:
    """Run a controller until SIGTERM or a failure (exit 1)."""
    from controller.__main__ import main

    sys.exit(main(read_properties(config_file), os.environ))
