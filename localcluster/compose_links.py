"""Links between the containers of one project, cut by packet filter rules of this machine (root, nft).

The rules are one table of the family `bridge`, named after the project: neither the image nor the Compose
file needs anything for it, and the ports of the project stay reachable from outside. Owns that table.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

from holdfast.localcluster.nodes import ClusterError

#: (address of the sender, address of the receiver)
Pair = tuple[str, str]

_SET = "cut"
_TIMEOUT_S = 20.0


class ContainerLinks:
    """The rules of one project."""

    def __init__(self, project: str) -> None:
        self.table = "holdfast_" + re.sub(r"\W", "_", project)

    @staticmethod
    def why_not() -> str:
        """Why links cannot be cut on this machine; empty when they can."""
        if os.geteuid() != 0:
            return "rules between containers need root"
        if shutil.which("nft") is None:
            return "nft is not installed (Debian: apt-get install nftables)"
        return ""

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Nothing passes from the first to the second address of a pair any more. Raises: ClusterError."""
        _nft(
            f"table bridge {self.table} {{\n"
            f" set {_SET} {{ type ipv4_addr . ipv4_addr; }}\n"
            " chain pairs { type filter hook forward priority 0; policy accept; }\n}\n"
            f"flush chain bridge {self.table} pairs\n"
            f"add rule bridge {self.table} pairs ip saddr . ip daddr @{_SET} drop\n"
            f"add element bridge {self.table} {_SET} {{ {_elements(pairs)} }}\n"
        )

    def mend(self, pairs: Iterable[Pair]) -> None:
        """They pass again; the table goes with its last pair. May be repeated. Raises: ClusterError."""
        now = set(self.pairs())
        gone = now & set(pairs)
        if now == gone:
            self.clear()
        elif gone:
            _nft(f"delete element bridge {self.table} {_SET} {{ {_elements(sorted(gone))} }}\n")

    def pairs(self) -> list[Pair]:
        """The pairs that are cut now."""
        if not self._exists():
            return []
        listed = _listed("set", "bridge", self.table, _SET)
        found = next(row["set"] for row in listed if "set" in row)
        return [tuple(element["concat"]) for element in found.get("elem", ())]

    def clear(self) -> bool:
        """Remove the table; True when there was one. Raises: ClusterError."""
        if self.why_not() or not self._exists():
            return False
        _nft(f"delete table bridge {self.table}\n")
        return True

    def _exists(self) -> bool:
        listed = _listed("tables", "bridge")
        return any(row.get("table", {}).get("name") == self.table for row in listed)


def _elements(pairs: Iterable[Pair]) -> str:
    return ", ".join(f"{source} . {sink}" for source, sink in pairs)


def _listed(*what: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(_run(["nft", "-j", "list", *what]))["nftables"]
    return rows


def _nft(script: str) -> None:
    """One transaction: all of it or nothing."""
    _run(["nft", "-f", "-"], script)


def _run(command: list[str], script: str = "") -> str:
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ClusterError(f"nft took longer than {_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise ClusterError(f"nft failed: {done.stderr.strip()}")
    return done.stdout
