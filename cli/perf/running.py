"""Runs the work of a performance test; what a client refuses becomes a sentence."""

from collections.abc import Callable, Coroutine
from typing import Any

import click

from holdfast.cli.options import CommandAnswer, run_client
from holdfast.client.core.errors import ClientError


def run_test(work: Callable[..., Coroutine[Any, Any, int]], answer: CommandAnswer, topic: str) -> int:
    """The exit code of `work(runtime)`, 0 when a client's error is in the answer instead. Raises:
    click.UsageError for settings that cannot be."""
    try:
        return run_client(work)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except ClientError as error:
        answer.refused(error, topic)
    return 0
