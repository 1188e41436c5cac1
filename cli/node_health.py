"""`holdfast node-health`: the healthcheck of containers and of `holdfast cluster`."""

import http.client
import json
import sys

import click

from cli.options import INT32_MAX, whole_number

#: Names of thousands of partitions fit.
BODY_BYTES_MAX = 4 << 20


def probe(host: str, port: int, path: str, timeout_s: float) -> tuple[bool, str]:
    """Whether GET `path` answers 200, and the body or the reason why there is none."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == 200, response.read(BODY_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def cluster_health(host: str, port: int, timeout_s: float) -> tuple[bool, list[str]]:
    """Whether the node takes the cluster for healthy, and why not."""
    answered, text = probe(host, port, "/v1/health", timeout_s)
    if not answered:
        return False, [text]
    try:
        health = json.loads(text)
        return bool(health["is_healthy"]), [str(reason) for reason in health["reasons"]]
    except (ValueError, KeyError, TypeError):
        return False, [f"{host}:{port} answers, but not as a Holdfast node does"]


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
def command(address: str, ready: bool, cluster: bool, timeout_ms: int) -> None:
    """Exit 0 when the node says yes, 1 when it says no or nothing."""
    host, port = _host_and_port(address)
    if cluster:
        well, reasons = cluster_health(host, port, timeout_ms / 1000)
        text = "healthy" if well else "\n".join(reasons)
    else:
        well, text = probe(host, port, "/readyz" if ready else "/livez", timeout_ms / 1000)
    click.echo(text)
    sys.exit(0 if well else 1)


def _host_and_port(address: str) -> tuple[str, int]:
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
