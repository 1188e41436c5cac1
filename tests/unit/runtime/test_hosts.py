"""Which Host headers a node answers (DNS rebinding)."""

import pytest

from holdfast.runtime.http.hosts import HostNames

NAMES = HostNames(["b1.Example.com.", "0.0.0.0", ""])


@pytest.mark.parametrize(
    "header",
    [
        None,
        "127.0.0.1",
        "127.0.0.1:9404",
        "10.1.2.3:80",
        "[::1]:9404",
        "[2001:db8::1]",
        "localhost",
        "LOCALHOST:9404",
        "node.localhost:1",
        "broker-1:9404",
        "b1.example.com:9404",
        "B1.example.com.",
    ],
)
def test_names_that_no_stranger_can_have_are_answered(header: str | None) -> None:
    assert NAMES.has(header)


@pytest.mark.parametrize(
    "header",
    ["evil.example", "evil.example:9404", "127.0.0.1.evil.example", "b1.example.com.evil.example", "", ":80"],
)
def test_other_names_are_not(header: str) -> None:
    assert not NAMES.has(header)
