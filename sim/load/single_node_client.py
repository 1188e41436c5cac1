"""A client that asks each node alone, in any role: an active controller, a deposed one, one that has just
begun, a broker that no other client would ask.

Owns what is asked and what was heard; `sim.checks.properties.stale_answers` judges it. Other clients ask any
node that answers, and again, so what a single one says is seen by no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import DescribeQuorumRequest
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from holdfast.rpc.channel import CallRefused, Pool
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.sim.cluster.nodes import BROKER_PORT, CONTROLLER_PORT, SimBroker, SimController, SimNode
from holdfast.sim.load.clients import REMADE, Load, partition_at
from holdfast.sim.machine.choices import Stream

_TIMEOUT_MS = 1_500
_ROWS_MAX = 1_000
_LONGEST_GAP_MS = 300
#: a topic that only this client makes and deletes; its name does not begin like those with load
TOPIC = "q"
#: a node that says that it was so already has to know that as well (K20)
_IS_THERE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_IS_GONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one process of a node has said."""

    node: SimNode
    #: which of its processes
    boots: int
    #: a question; else what was asked for is done: the topic is there, or is not
    described: DescribeTopicPartitionsResponse | None = None
    is_there: bool = False


@dataclass(slots=True)
class FreshAnswers:
    """Answers since the observer last looked."""

    fresh: list[Answer] = field(default_factory=list)


def single_node_client(
    load: Load,
    heard: FreshAnswers,
    work: Stream,
    controllers: Sequence[SimController],
    brokers: Sequence[SimBroker],
) -> Callable[[Runtime], object]:
    """Asks until the load is over."""

    async def run(runtime: Runtime) -> None:
        pool = Pool(runtime, "asker")
        while not load.is_over:
            await runtime.clock.sleep(_LONGEST_GAP_MS - work.draw(_LONGEST_GAP_MS))
            node: SimNode = controllers[work.draw(len(controllers))]
            kind, port = work.draw(8), CONTROLLER_PORT
            if kind > 5:
                node, port = brokers[work.draw(len(brokers))], BROKER_PORT
            boots, host = node.boots, node.name
            try:
                if kind == 4:
                    topic = CreatableTopic(TOPIC, 1, 1, (), ())
                    made = await pool.call(
                        host, port, CreateTopicsRequest(_TIMEOUT_MS, False, (topic,)), _TIMEOUT_MS
                    )
                    is_made = made.topics and made.topics[0].error_code in _IS_THERE
                    if made.error_code == ErrorCode.NONE and is_made:
                        heard.fresh.append(Answer(node, boots, is_there=True))
                elif kind == 3:
                    await pool.call(host, port, DescribeQuorumRequest(), _TIMEOUT_MS)
                elif kind == 5:
                    gone = await pool.call(
                        host, port, DeleteTopicsRequest(_TIMEOUT_MS, (TOPIC,)), _TIMEOUT_MS
                    )
                    is_gone = gone.topics and gone.topics[0].error_code in _IS_GONE
                    if gone.error_code == ErrorCode.NONE and is_gone:
                        heard.fresh.append(Answer(node, boots))
                else:
                    names = sorted({partition_at(place).topic for place in load.places} - {REMADE})
                    question = DescribeTopicPartitionsRequest(tuple(names), _ROWS_MAX, None)
                    described = await pool.call(host, port, question, _TIMEOUT_MS)
                    heard.fresh.append(Answer(node, boots, described))
            except (NetworkError, CallRefused):
                continue
        pool.close()

    return run
