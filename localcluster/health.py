"""Asks a node's HTTP endpoint whether the node is alive or ready, and whether the cluster is healthy."""

import http.client
import json

#: enough for the names of thousands of partitions
BODY_BYTES_MAX = 4 << 20


def probe(host: str, port: int, path: str, timeout_s: float) -> tuple[bool, str]:
    """Whether GET `path` answers 200, and the body or why there is none."""
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
    """Whether the node reports a healthy cluster, and why not."""
    answered, text = probe(host, port, "/v1/health", timeout_s)
    if not answered:
        return False, [text]
    try:
        health = json.loads(text)
        return bool(health["is_healthy"]), [str(reason) for reason in health["reasons"]]
    except (ValueError, KeyError, TypeError):
        return False, [f"{host}:{port} answers, but not as a Holdfast node does"]
