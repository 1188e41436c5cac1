"""Time for requests is shared equally among the connections that want it."""

from holdfast.rpc.core.fair_queue import FairQueue


class Served:
    """Connections that are served by turns, and what each has had."""

    def __init__(self) -> None:
        self.queue: FairQueue[str] = FairQueue()
        self.had_ns: dict[str, int] = {}

    def add(self, name: str) -> None:
        self.queue.add(name, self.had_ns.get(name, 0))

    def serve(self, spent_ns: int) -> str:
        name = self.queue.take()
        self.had_ns[name] = self.queue.charge(self.had_ns.get(name, 0), spent_ns)
        return name


def test_those_that_need_long_come_less_often() -> None:
    served = Served()
    costs = {"slow": 300, "quick": 100}
    for name in costs:
        served.add(name)
    turns = []
    for _ in range(40):
        name = served.queue.take()
        served.had_ns[name] = served.queue.charge(served.had_ns.get(name, 0), costs[name])
        served.add(name)
        turns.append(name)
    assert turns.count("quick") == 30


def test_one_that_asks_seldom_is_next_however_many_wait() -> None:
    served = Served()
    flooding = [f"flood-{number}" for number in range(40)]
    for name in flooding:
        served.add(name)
    for _ in range(400):
        served.add(served.serve(2_000_000))
    served.add("heartbeat")
    assert served.serve(1_000) == "heartbeat"


def test_what_was_had_while_no_other_waited_is_not_held_against_one() -> None:
    served = Served()
    for _ in range(1_000):
        served.had_ns["busy"] = served.queue.charge(served.had_ns.get("busy", 0), 1_000_000)
    served.add("flood")
    served.add("busy")
    assert served.serve(2_000_000) == "flood"
    served.add("flood")
    assert served.serve(1_000_000) == "busy"
