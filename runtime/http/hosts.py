"""Which names a node answers to over HTTP.

Owns the check of the Host header: a page of a stranger's site can make its own name lead to this node's
address (DNS rebinding) and would then read with the rights of who looks at it. The header betrays it.
"""

from collections.abc import Iterable
from ipaddress import ip_address


class HostNames:
    """Names that the operator has given to the nodes, besides those that no site can have."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(_plain(name) for name in names)

    def has(self, header: str | None) -> bool:
        """`header`: the value of Host, with or without a port; None: there was none, which no browser does.

        True for addresses, loopback names and names without a dot too: a stranger's site has none of these.
        """
        if header is None:
            return True
        name = _plain(_without_port(header))
        return bool(name) and (
            name in self._names or "." not in name or name.endswith(".localhost") or _is_address(name)
        )


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    host, colon, port = header.rpartition(":")
    return host if colon and port.isdecimal() else header


def _plain(name: str) -> str:
    return name.strip().lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
