"""What a call of Spark may raise, and what of it is worth telling."""

from collections.abc import Iterable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

_REASON_CHARS = 400
#: What a call of Spark may raise; the last one when its Java has died.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


def reason_of(error: Exception) -> str:
    """The line of a Spark error that says what happened on the Python side, else its first line."""
    text = str(error).splitlines()
    lines = [line.strip() for line in text if line.strip()]
    named = [line for line in lines if line.startswith("holdfast.")] or _ends_of_tracebacks(text)
    return (named[-1] if named else lines[0] if lines else type(error).__name__)[:_REASON_CHARS]


def _ends_of_tracebacks(lines: Iterable[str]) -> list[str]:
    """What workers have raised: the first line behind a traceback that is not set in."""
    found: list[str] = []
    is_inside = False
    for line in lines:
        if line.endswith("Traceback (most recent call last):"):
            is_inside = True
        elif is_inside and line and not line[0].isspace():
            found.append(line)
            is_inside = False
    return found
