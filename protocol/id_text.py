"""Ids of 16 bytes as text, as Kafka writes them: topics, log dirs, incarnations."""

import base64
import binascii

_ID_BYTES = 16


def encode_id(raw: bytes) -> str:
    """16 bytes as 22 characters: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_id(text: str) -> bytes | None:
    """The 16 bytes; None when the text is not an id."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == _ID_BYTES and encode_id(raw) == text else None
