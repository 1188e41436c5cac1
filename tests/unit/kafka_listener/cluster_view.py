"""A broker's view for tests: brokers 1 (here), 2 without the listener, 3 fenced; topics t and u."""

from dataclasses import replace
from typing import Any

from holdfast.kafka_listener.core.translation import ClusterView, LogDirView
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.config_keys import BROKER_FILE_KEYS
from holdfast.protocol.messages.broker_registration import ListenerEndpoint
from tests.unit.metadata.test_describe import IMAGE

INSIDE = ListenerEndpoint("PLAINTEXT", "inside", 9092)
KAFKA = ListenerEndpoint("KAFKA", "kafka", 9192)
STATIC: dict[str, Any] = {key.name: key.default for key in BROKER_FILE_KEYS}


def _brokers() -> Any:
    one = IMAGE.brokers[1]

    def broker(broker_id: int, *listeners: ListenerEndpoint, is_fenced: bool = False) -> BrokerRegistration:
        return replace(one, broker_id=broker_id, listeners=listeners, is_fenced=is_fenced)

    brokers = IMAGE.brokers.set(1, broker(1, INSIDE, KAFKA)).set(2, broker(2, INSIDE))
    return brokers.set(3, broker(3, INSIDE, KAFKA, is_fenced=True))


VIEW = ClusterView(
    image=replace(IMAGE, brokers=_brokers()),
    broker_id=1,
    cluster_id="test",
    listener_name="KAFKA",
    static=STATIC,
    offsets_of=lambda key: (7, 3),
    log_dirs=lambda: (
        LogDirView("/d1", True, (("t", 0, 100, 0), ("t", 1, 50, 2), ("u", 0, 1, 0)), 1000, 400),
        LogDirView("/d2", False, ()),
    ),
)
