"""`holdfast node-health`: the healthcheck of containers and of `holdfast cluster`."""

import http.client
import sys

import click

from holdfast.cli.options import INT32_MAX, CommandAnswer, output, whole_number
from holdfast.localcluster.health import cluster_health, probe


@click.command()
@click.option(
    "--http",
    "address",
    default="127.0.0.1:9404",
    show_default=True,
    metavar="HOST:PORT",
    help="Admin endpoint.",
)
@click.option("--ready", is_flag=True, help="Ask /readyz (registered, unfenced) instead of /livez.")
@click.option("--cluster", is_flag=True, help="Ask /v1/health: is all well in the whole cluster?")
@click.option("--timeout-ms", type=click.IntRange(1, INT32_MAX), default=2000, show_default=True)
@output
def command(address: str, ready: bool, cluster: bool, timeout_ms: int, output: str) -> None:
    """Exit 0 when the node says yes, 1 when it says no or nothing."""
    host, port = host_and_port(address)
    if cluster:
        well, reasons = cluster_health(host, port, timeout_ms / 1000)
        text = "healthy" if well else "\n".join(reasons)
    else:
        well, text = probe(host, port, "/readyz" if ready else "/livez", timeout_ms / 1000)
    if output == "json":
        answer = CommandAnswer("node-health", {"text": text})
        if not well:
            answer.errors.append({"code": "NOT_WELL", "message": text})
        answer.show(output, "")
    else:
        click.echo(text)
    sys.exit(0 if well else 1)


def host_and_port(address: str) -> tuple[str, int]:
    """The value of --http. Raises: click.UsageError."""
    host, _, digits = address.rpartition(":")
    port = whole_number(digits, 65_535)
    try:
        host.encode("idna")
        http.client.HTTPConnection(host, port)
    except (UnicodeError, http.client.InvalidURL):
        port = None
    if port is None:
        raise click.UsageError(f"--http {address}: expected HOST:PORT")
    return host, port
