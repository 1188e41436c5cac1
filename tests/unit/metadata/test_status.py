"""What /v1/... answers: the examples of docs/http.md, every refusal, pages, and cost."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from holdfast.metadata.status import PAGE_ROWS_MAX, PARTITIONS_A_STEP, STATES, NodeView, answer
from holdfast.runtime.stats import HttpReply
from tests.unit.controller.harness import NODE_ID, Quorum, make_config
from tests.unit.controller.test_topics import create

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
#: ```json blocks under a heading or sentence that ends in the path that was asked
EXAMPLE = re.compile(r"`GET (?P<path>/v1/[^`]*)`[^\n]*\n+```json\n(?P<body>.*?)```", re.DOTALL)


def quorum() -> Quorum:
    """The cluster of the page: 3 lost its disk and came back, 2 is down, so 1 leads alone."""
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3)
    create(made, "orders", -1, -1, (1, 2, 3), (3, 2, 1))
    create(made, "audit", -1, -1, (3,))
    made.vanish(3)
    made.register(3)
    made.vanish(2)
    return made


def example_view() -> NodeView:
    """Broker 1 of that cluster, with what it has of orders-0."""
    made = quorum()
    key = (made.topic("orders").topic_id, 0)
    replica = {
        "role": "leader",
        "leader_epoch": 0,
        "log_start_offset": 0,
        "high_watermark": 100,
        "flushed_offset": 90,
        "log_end_offset": 120,
        "maximal_isr": [1],
        "followers": [{"id": 2, "position": 110}, {"id": 3, "position": -1}],
    }
    readers = {
        "group": "readers",
        "state": "Stable",
        "members": 2,
        "partitions": 2,
        "lag": 70,
        "unknown": 0,
        "worst": [
            {"topic": "orders", "partition": 0, "lag": 60},
            {"topic": "orders", "partition": 1, "lag": 10},
        ],
    }

    def groups(limit: int) -> Generator[None, None, dict[str, Any]]:
        yield
        return {"groups": [readers][:limit], "count": 1}

    return view(made, replica_of={key: replica}.get, groups=groups)


def view(quorum: Quorum, **changes: Any) -> NodeView:
    given = {
        "image": quorum.image,
        "cluster_id": "q1w2e3r4",
        "node_id": 1,
        "role": "broker",
        "is_ready": True,
        "state": "RUNNING",
        "controller_id": NODE_ID,
        "controller_epoch": 1,
        "voters": (101, 102, 103),
    }
    return NodeView(**{**given, **changes})


def ask(view: NodeView, url: str) -> HttpReply:
    parts = urlsplit(url)
    steps = answer(view, parts.path, parse_qsl(parts.query, keep_blank_values=True))
    while True:
        try:
            next(steps)
        except StopIteration as done:
            reply: HttpReply = done.value
            return reply


def body(view: NodeView, url: str) -> dict[str, Any]:
    reply = ask(view, url)
    assert reply.status == 200, reply
    return reply.body


def names(view: NodeView, url: str) -> list[str]:
    return [f"{row['topic']}-{row['partition']}" for row in body(view, url)["partitions"]]


@pytest.mark.parametrize(
    ("path", "example"), [(found["path"], found["body"]) for found in EXAMPLE.finditer(PAGE.read_text())]
)
def test_the_examples_of_the_page_are_what_is_answered(path: str, example: str) -> None:
    shown = json.loads(json.dumps(body(example_view(), path)))
    assert shown == json.loads(example), json.dumps(shown, indent=2)


def test_every_path_has_an_example() -> None:
    found = {
        re.sub(r"\?.*|(?<=partitions)/.*", "", match["path"]) for match in EXAMPLE.finditer(PAGE.read_text())
    }
    assert found == {"/v1/cluster", "/v1/groups", "/v1/health", "/v1/partitions"}
    assert [state for state in STATES if f"`{state}`" not in PAGE.read_text()] == []


@pytest.mark.parametrize(
    ("state", "partitions"),
    [
        ("leaderless", ["audit-0"]),
        ("needs_recovery", ["audit-0"]),
        ("under_replicated", ["audit-0", "orders-0", "orders-1"]),
        ("under_min_isr", ["audit-0", "orders-0", "orders-1"]),
        ("elr_in_use", ["orders-0", "orders-1"]),
        ("recovering", []),
        ("reassigning", []),
        ("offline_replicas", ["audit-0", "orders-0", "orders-1"]),
    ],
)
def test_partitions_are_found_by_their_state(state: str, partitions: list[str]) -> None:
    seen = view(quorum())
    assert names(seen, f"/v1/partitions?state={state}") == partitions
    for name in partitions:
        topic, _, index = name.rpartition("-")
        assert state in body(seen, f"/v1/partitions/{topic}/{index}")["states"]


def test_a_node_that_coordinates_no_groups_says_that_there_are_none() -> None:
    assert body(view(quorum()), "/v1/groups") == {"groups": [], "count": 0}


def test_pages_follow_each_other_without_gap_or_overlap() -> None:
    seen = view(quorum())
    url, found = "/v1/partitions?limit=1", []
    while url:
        page = body(seen, url)
        found += [f"{row['topic']}-{row['partition']}" for row in page["partitions"]]
        url = f"/v1/partitions?limit=1&from={page['next']}" if page["next"] else ""
    assert found == ["audit-0", "orders-0", "orders-1"]
    assert names(seen, "/v1/partitions?topic=orders") == ["orders-0", "orders-1"]
    assert names(seen, "/v1/partitions?topic=orders&from=orders:1") == ["orders-1"]
    # where a topic was, that is gone since
    assert names(seen, "/v1/partitions?from=b:7") == ["orders-0", "orders-1"]


@pytest.mark.parametrize(
    ("url", "status", "says"),
    [
        ("/v1", 404, "there is no /v1"),
        ("/v1/", 404, "/v1/cluster"),
        ("/v1/clusters", 404, "/v1/health"),
        ("/v1/partitions/orders", 404, "/v1/partitions/TOPIC/INDEX"),
        ("/v1/partitions/orders/7", 404, "topic orders has 2 partitions"),
        ("/v1/partitions/none/0", 404, "no topic 'none'"),
        ("/v1/partitions?topic=none", 404, "no topic 'none'"),
        ("/v1/partitions/orders/one", 400, "must be a number"),
        ("/v1/partitions/orders/-1", 400, "must be a number"),
        ("/v1/partitions/orders/99999999999", 400, "must be a number"),
        ("/v1/partitions/orders/٣", 400, "must be a number"),
        ("/v1/partitions/orders/0?limit=1", 400, "it takes none"),
        ("/v1/cluster?x=1", 400, "no parameter 'x'"),
        ("/v1/health?watch=", 400, "no parameter 'watch'"),
        ("/v1/partitions?limit=0", 400, "from 1 to"),
        ("/v1/groups?limit=0", 400, "from 1 to"),
        (f"/v1/partitions?limit={PAGE_ROWS_MAX + 1}", 400, f"to {PAGE_ROWS_MAX}"),
        ("/v1/partitions?limit=1&limit=2", 400, "given twice"),
        ("/v1/partitions?state=odd", 400, "there are leaderless"),
        ("/v1/partitions?from=orders", 400, "TOPIC:INDEX"),
        ("/v1/partitions?from=orders:x", 400, "must be a number"),
        ("/v1/partitions?topic=audit&from=orders:1", 400, "not in topic audit"),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(url: str, status: int, says: str) -> None:
    reply = ask(view(quorum()), url)
    assert reply.status == status
    assert says in reply.body["error"]["message"]


def test_a_sound_cluster_is_healthy_and_each_trouble_is_told() -> None:
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3)
    create(made, "orders", -1, -1, (1, 2, 3))
    assert body(view(made), "/v1/health")["reasons"] == []
    assert body(view(made), "/v1/health")["is_healthy"]
    assert body(view(made, controller_id=None), "/v1/health")["reasons"] == [
        "no active controller is known to this node"
    ]
    made.vanish(1)
    assert body(view(made), "/v1/health")["reasons"] == [
        "brokers down: 1",
        "partitions whose ISR lacks a replica: 1",
    ]
    nothing = body(view(Quorum(make_config())), "/v1/health")
    assert (nothing["is_healthy"], nothing["headroom"]) == (False, None)


def test_answers_about_many_partitions_give_others_their_turn() -> None:
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3)
    count = 3 * PARTITIONS_A_STEP
    create(made, "many", -1, -1, *[(1, 2, 3)] * count)
    for url in ("/v1/cluster", "/v1/health", "/v1/partitions?state=leaderless"):
        parts = urlsplit(url)
        steps = answer(view(made), parts.path, parse_qsl(parts.query))
        assert sum(1 for _ in steps) == 3, url
    assert len(body(view(made), "/v1/partitions")["partitions"]) == 100
