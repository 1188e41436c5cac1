"""The table of actions: name, function, weight in a tuned walk, and whether it is a fault.

Owns the weights only. Swarm walks change them, triggers fire faults right after an action of their choice.
"""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.sim.model import controller, fetching, lifecycle, proposals, replica
from holdfast.sim.model.state import ModelWorld


class Action(NamedTuple):
    """Something that may happen. The function says whether it did."""

    name: str
    run: Callable[[ModelWorld, int], bool]
    weight: float
    is_fault: bool = False


ACTIONS = (
    Action("replay", replica.replay, 14),
    Action("fetch", fetching.fetch, 11),
    Action("serve fetch", fetching.serve_fetch, 11),
    Action("take fetch answer", fetching.take_fetch_answer, 11),
    Action("produce", replica.produce, 5),
    Action("consume", replica.consume, 2),
    Action("expand", proposals.expand, 4),
    Action("deliver", proposals.deliver, 7),
    Action("begin flush", replica.begin_flush, 2),
    Action("end flush", replica.end_flush, 2),
    Action("start", lifecycle.start, 1),
    Action("register", controller.registration, 2),
    Action("unfence", controller.unfence, 2),
    Action("expire session", controller.expire_session, 2),
    Action("finish stop", lifecycle.finish_stop, 2),
    Action("ask for log info", controller.ask_for_log_info, 1),
    Action("recover", controller.recover, 1),
    Action("unclean pass", controller.elect_unclean, 0.3),
    Action("shrink", proposals.shrink, 3, True),
    Action("resend proposal", proposals.resend_proposal, 3, True),
    Action("expire live session", controller.expire_live_session, 2, True),
    Action("controlled shutdown", controller.controlled_shutdown, 0.7, True),
    Action("stop", lifecycle.stop, 1, True),
    Action("kill", lifecycle.kill, 2, True),
    Action("kill all", lifecycle.kill_all, 0.1, True),
    Action("cut power", lifecycle.cut_power, 3, True),
    Action("cut all power", lifecycle.cut_all_power, 0.2, True),
    Action("fail flush", lifecycle.fail_flush, 0.5, True),
    Action("fail over", controller.fail_over, 0.7, True),
    Action("time out fetch", fetching.time_out_fetch, 3, True),
    Action("late fetch", fetching.late_fetch, 4, True),
    Action("lose message", proposals.lose_message, 2, True),
    Action("hold message", proposals.hold_message, 5, True),
    Action("release message", proposals.release_message, 4, True),
    Action("reassign", controller.reassign, 2.5, True),
    Action("change min ISR", controller.change_min_isr, 0.7, True),
)
INDEX = {action.name: index for index, action in enumerate(ACTIONS)}
FUNCTIONS = tuple(action.run for action in ACTIONS)
FAULTS = tuple(index for index, action in enumerate(ACTIONS) if action.is_fault)
#: actions after which a fault hurts most: something is under way then
MOMENTS = tuple(
    INDEX[name]
    for name in (
        "serve fetch",
        "expand",
        "deliver",
        "start",
        "register",
        "unfence",
        "ask for log info",
        "recover",
        "end flush",
        "finish stop",
        "resend proposal",
        "time out fetch",
    )
)
#: faults that hurt as a pair
PAIRS = tuple(
    (INDEX[one], INDEX[other])
    for one, other in (
        ("resend proposal", "expire live session"),
        ("resend proposal", "fail over"),
        ("cut power", "expire live session"),
        ("kill", "cut power"),
        ("stop", "cut power"),
        ("controlled shutdown", "stop"),
        ("time out fetch", "late fetch"),
        ("lose message", "resend proposal"),
        ("hold message", "resend proposal"),
        ("hold message", "expire live session"),
    )
)
#: rare states after which a trigger may fire
EVENTS = (
    "AlterPartition refused: ineligible replica",
    "ELR of one",
    "ELR cleared by expansion",
    "ISR empty",
    "ISR and ELR empty",
    "clean stop",
    "diverging answer",
    "elected from ELR",
    "fetch timed out",
    "leader stopped",
    "log info refused",
    "recovery by all last known",
    "recovery started",
    "reassignment completed",
    "records lost by power",
    "truncated",
    "unclean registration",
)
#: faults that a trigger fires at one broker
TARGETED = tuple(INDEX[name] for name in ("expire live session", "kill", "cut power", "stop"))
