"""What a call of Spark may raise, and what of it is worth telling."""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

_REASON_CHARS = 400
#: What a call of Spark may raise; the last one when its Java has died.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


def reason_of(error: Exception) -> str:
    """The line of a Spark error that says what happened on the Python side, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("holdfast.")]
    return (named[-1] if named else lines[0] if lines else type(error).__name__)[:_REASON_CHARS]
