"""Follows `/v1/events` of one node after the other, in a thread, and keeps the state that they describe.

Owns connections and who is asked next: the node that answered, and when another one is the active controller
and its address is known, that one. Another thread asks all of them for the consumer groups: each broker knows
its own, and no event tells of them.
"""

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.cli.watch.state import BoardState, Groups, events_of

#: a node says that it is alive every 5 s
_SILENCE_S = 12.0
_PAUSE_S = 0.5
_DECISIONS = 20
_GROUPS = 20
_GROUPS_PAUSE_S = 3.0
#: of a node that is asked for its groups: a silent one must not hide those of others for long
_GROUPS_SILENCE_S = 3.0


class Address(NamedTuple):
    """Where a node's HTTP is."""

    host: str
    port: int
    #: None: not known before it answers
    node_id: int | None = None

    @property
    def text(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"


class Following:
    """The state, which a thread keeps; `changed` is set with each change of it."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        self._by_id: Mapping[int, Address] = {
            one.node_id: one for one in addresses if one.node_id is not None
        }
        self.lock = threading.Lock()
        self.state = BoardState()
        self.source = addresses[0].text
        self.groups = Groups()
        #: a whole state has come, and no other node is known to know more
        self.is_settled = False
        #: why nothing comes at the moment
        self.trouble = ""
        self.changed = threading.Event()
        self._ended = threading.Event()
        self._last_id: str | None = None
        self._asked: Address | None = None
        #: did not answer last: others may still take it for the active controller
        self._silent: Address | None = None
        #: every node has been asked for its groups
        self.knows_groups = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="watch", daemon=True),
            threading.Thread(target=self._ask_for_groups, name="watch groups", daemon=True),
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """The threads end by themselves soon; they hold nothing that must be closed."""
        self._ended.set()

    def _run(self) -> None:
        address = self._addresses[0]
        while not self._ended.is_set():
            try:
                better = self._follow(address)
                if better is None:  # a stream ends after a while by itself: others may be back
                    self._silent = None
                address = better or address
                continue
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                with self.lock:
                    self.trouble = str(error) or type(error).__name__
                self._silent = address
                self.changed.set()
            self._ended.wait(_PAUSE_S)
            address = self._addresses[(self._addresses.index(address) + 1) % len(self._addresses)]

    def _follow(self, address: Address) -> Address | None:
        """Read one stream to its end; another address that is better, if any.

        Raises: OSError, HTTPException, ValueError.
        """
        if address != self._asked:  # what another node said is no beginning for this one's changes
            self._asked, self._last_id = address, None
        connection = http.client.HTTPConnection(address.host, address.port, timeout=_SILENCE_S)
        try:
            headers = {} if self._last_id is None else {"Last-Event-ID": self._last_id}
            connection.request("GET", "/v1/events", headers=headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ValueError(f"{address.text} answers {response.status}")
            with self.lock:
                self.source, self.trouble = address.text, ""
                if self._last_id is None:
                    self.state = BoardState()
            lines = (line.decode("utf-8", "replace") for line in iter(response.readline, b""))
            for event in events_of(lines):
                if self._ended.is_set():
                    return None
                with self.lock:
                    self.state.take(event.kind, json.loads(event.data))
                if event.kind == "offset":
                    self._last_id = event.id
                    better = self._better_than(address)
                    if better is not None:
                        return better
                    self._ask_why(address)
                    self.is_settled = True
                    self.changed.set()
            return None
        finally:
            connection.close()

    def _better_than(self, address: Address) -> Address | None:
        """The active controller, when it is another node whose address is known."""
        assert self.state.cluster is not None
        active = self._by_id.get(self.state.cluster["quorum"]["leader_id"])
        if active is None or active == address or active == self._silent:
            return None
        return active

    def _ask_why(self, address: Address) -> None:
        if not self.state.is_from_the_active_controller:
            return
        answer = _asked(address, f"/v1/decisions?limit={_DECISIONS}", _SILENCE_S)
        if answer is not None:
            with self.lock:
                self.state.decisions = answer["decisions"]

    def _ask_for_groups(self) -> None:
        answers: dict[Address, Any] = {}
        while not self._ended.is_set():
            for address in self._addresses:
                answers.pop(address, None)
                with suppress(OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                    answer = _asked(address, f"/v1/groups?limit={_GROUPS}", _GROUPS_SILENCE_S)
                    Groups().take(answer)  # others may answer there
                    answers[address] = answer
                found = Groups()
                for answer in answers.values():
                    found.take(answer)
                with self.lock:
                    self.groups = found
                self.changed.set()
            self.knows_groups.set()
            self._ended.wait(_GROUPS_PAUSE_S)


def _asked(address: Address, path: str, timeout_s: float) -> Any:
    """The JSON that a node answers with, None when it refuses. Raises: OSError, HTTPException, ValueError."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return json.loads(response.read()) if response.status == http.client.OK else None
    finally:
        connection.close()
