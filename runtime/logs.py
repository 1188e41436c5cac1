"""How a node's process logs: one line an event on stderr.

Owns the format only: UTC time, level, node, logger, message, and the story of an exception folded into the
same line as JSON, so that a line is the unit for grep and for log collectors. Entry points call `configure`
once.
"""

import json
import logging
import sys
from datetime import UTC, datetime


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO broker-1 holdfast.broker: message trace="..."`."""

    def __init__(self, node_name: str) -> None:
        super().__init__()
        self._node_name = node_name

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        stamp = f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"
        message = record.getMessage()
        if not message.isprintable():
            message = json.dumps(message, ensure_ascii=False)[1:-1]
        line = f"{stamp} {record.levelname} {self._node_name} {record.name}: {message}"
        if record.exc_info and record.exc_info[0] is not None:
            line += f" trace={json.dumps(self.formatException(record.exc_info), ensure_ascii=False)}"
        return line


def configure(node_name: str, level: str = "INFO") -> None:
    """Send to stderr what is logged from `level` (DEBUG, INFO, WARNING, ERROR) on. Replaces earlier calls."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(node_name))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # The loop's own chatter (selector names, slow callbacks in debug mode) is no event of ours.
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, logging.getLevelName(level)))
