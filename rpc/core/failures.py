"""Why a call got no answer, in the words that every core uses."""

from enum import Enum


class CallFailure(Enum):
    """Why a call got no answer. Only `REFUSED` and `DISCONNECTED` say something about the peer (D9)."""

    #: no process listens at the peer's port
    REFUSED = "refused"
    #: the connection broke while the answer was awaited
    DISCONNECTED = "disconnected"
    #: silence: says nothing about the peer
    TIMED_OUT = "timed out"
    #: unreachable host, unknown name, ...
    UNREACHABLE = "unreachable"
    #: the peer's rpc layer would not take the request
    REJECTED = "rejected"
