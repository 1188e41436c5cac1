"""`holdfast node-health`: which addresses it takes; what nodes answer is in tests/e2e/test_http.py."""

import json
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main


@pytest.mark.parametrize(
    "address",
    ["h", "h:", "h:²", "h:65536", "bad host:80", "a\n:80", "a..b:80", f"{'a' * 64}:80", "\udcff:80"],
)
def test_what_is_no_address_is_wrong_usage(address: str) -> None:
    result = CliRunner().invoke(main, ["node-health", "--http", address])
    assert result.exit_code == 2
    assert "expected HOST:PORT" in result.output


@pytest.mark.parametrize(
    "text", [b"hi", b"{}", b"[1]", b'{"is_healthy": true}', b'{"is_healthy": true, "reasons": 1}']
)
def test_what_is_no_answer_of_ours_is_a_no_in_a_line(text: bytes) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        Thread(target=server.handle_request).start()
        address = f"127.0.0.1:{server.server_port}"
        result = CliRunner().invoke(main, ["node-health", "--cluster", "--http", address])
    assert result.exit_code == 1
    assert result.stdout == f"{address} answers, but not as a Holdfast node does\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_where_no_process_listens_is_a_no_in_a_line(host: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"{host}:{silent.getsockname()[1]}"
        result = CliRunner().invoke(main, ["node-health", "--http", address])
    assert result.exit_code == 1
    assert result.output.startswith("ConnectionRefusedError: ")
    assert len(result.output.splitlines()) == 1


def test_programs_get_the_no_as_json() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = CliRunner().invoke(main, ["node-health", "--http", address, "--output", "json"])
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["ok"]) == (1, False)
    assert answer["errors"][0]["message"].startswith("ConnectionRefusedError: ")
