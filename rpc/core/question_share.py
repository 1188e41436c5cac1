"""How much time questions get while records flow: a flood of them must not stop those who write and read.

Owns the share and when it holds. Each connection gets an equal part of the time (`fair_queue`), but forty
that ask as fast as they can would take forty parts, and the processor time of who asks comes on top where
clients and nodes share a machine. So the questions of all connections together get a tenth of the time while
requests with records come in, and any time else.
"""

from holdfast.protocol.api_keys import ApiKey

#: What is asked of a node's own knowledge, also by Kafka's clients, whose numbers are the same.
QUESTIONS = frozenset(
    (
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    )
)
#: Time is counted in spans of this length.
SPAN_NS = 50_000_000
#: Time that questions get of one span while records flow.
QUESTIONS_NS = SPAN_NS // 10
#: Records flow for so long after a span in which they have taken this time.
FLOW_NS = 200_000_000
FLOWING_NS = 1_000_000


class QuestionShare:
    """The time of one node that questions have had."""

    __slots__ = ("_asked_ns", "_end_ns", "_flow_end_ns", "_records_ns")

    def __init__(self) -> None:
        #: of this span
        self._asked_ns = 0
        self._records_ns = 0
        #: when this span ends, and until when records flow
        self._end_ns = 0
        self._flow_end_ns = 0

    def spent(self, spent_ns: int, now_ns: int, *, is_question: bool) -> None:
        """A request took so long."""
        self._go_on(now_ns)
        if is_question:
            self._asked_ns += spent_ns
        else:
            self._records_ns += spent_ns
            if self._records_ns >= FLOWING_NS:
                self._flow_end_ns = now_ns + FLOW_NS

    def wait_ns(self, now_ns: int) -> int:
        """How long the next question has to wait; 0: not at all."""
        if self._flow_end_ns <= now_ns:
            return 0
        self._go_on(now_ns)
        return self._end_ns - now_ns if self._asked_ns >= QUESTIONS_NS else 0

    def _go_on(self, now_ns: int) -> None:
        if now_ns >= self._end_ns:
            self._end_ns = now_ns + SPAN_NS
            self._asked_ns = self._records_ns = 0
