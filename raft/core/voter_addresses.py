"""Which address of a node is tried: the one that the log names or a peer told, or the configured one.

Owns where the last attempt at each configured node has failed. The two are tried in turn, so that a
controller that has moved, or was added with a wrong address, is found as long as one is right (K30).
"""

from collections.abc import Mapping
from typing import TypeAlias

#: host and port
Address: TypeAlias = tuple[str, int]


class VoterAddresses:
    """Of one member."""

    def __init__(self, configured: Mapping[int, Address]) -> None:
        """`configured`: {voter: address} of `controller.quorum.voters`."""
        self._configured = configured
        self._missed: dict[int, Address] = {}

    def choose(self, node_id: int, known: Address | None) -> Address | None:
        """Where to try the node next, None when that is not known. `known`: by the log or by a peer."""
        configured = self._configured.get(node_id)
        if known is None or configured is None:
            return known or configured
        return configured if self._missed.get(node_id) == known else known

    def missed(self, node_id: int, address: Address, known: Address | None) -> bool:
        """No connection to the node was made at `address`. True when another one is tried next: then that
        says nothing of the node."""
        if node_id not in self._configured:
            return False
        self._missed[node_id] = address
        return known is not None and known != self._configured[node_id]
