"""The table of actions: name, function, weight in a tuned walk, and whether it is a fault.

Owns the weights only. Swarm walks change them, triggers fire faults right after an action of their choice.
"""

from collections.abc import Callable
from typing import NamedTuple

from sim.model import controller, lifecycle, replica
from sim.model.state import World


class Action(NamedTuple):
    """Something that may happen. The function says whether it did."""

    name: str
    run: Callable[[World, int], bool]
    weight: float
    is_fault: bool = False


ACTIONS = (
    Action("replay", replica.replay, 12),
    Action("fetch", replica.fetch, 11),
    Action("serve fetch", replica.serve_fetch, 11),
    Action("take fetch answer", replica.take_fetch_answer, 11),
    Action("produce", replica.produce, 6),
    Action("consume", replica.consume, 2),
    Action("expand", replica.expand, 5),
    Action("shrink", replica.shrink, 1, True),
    Action("deliver", replica.deliver, 7),
    Action("resend proposal", replica.resend_proposal, 0.7, True),
    Action("begin flush", replica.begin_flush, 3),
    Action("end flush", replica.end_flush, 3),
    Action("start", lifecycle.start, 2),
    Action("register", controller.registration, 2.5),
    Action("unfence", controller.unfence, 2.5),
    Action("finish stop", lifecycle.finish_stop, 1.5),
    Action("ask for log info", controller.ask_for_log_info, 2),
    Action("recover", controller.recover, 2),
    Action("unclean pass", controller.elect_unclean, 0.2),
    Action("expire session", controller.expire_session, 1.4, True),
    Action("controlled shutdown", controller.controlled_shutdown, 0.25, True),
    Action("stop", lifecycle.stop, 0.5, True),
    Action("kill", lifecycle.kill, 0.5, True),
    Action("kill all", lifecycle.kill_all, 0.015, True),
    Action("cut power", lifecycle.cut_power, 0.7, True),
    Action("cut all power", lifecycle.cut_all_power, 0.03, True),
    Action("fail flush", lifecycle.fail_flush, 0.15, True),
    Action("fail over", controller.fail_over, 0.1, True),
    Action("time out fetch", replica.time_out_fetch, 0.7, True),
    Action("late fetch", replica.late_fetch, 0.7, True),
    Action("lose message", replica.lose_message, 0.4, True),
    Action("reassign", controller.reassign, 0.25, True),
    Action("change min ISR", controller.change_min_isr, 0.12, True),
)
INDEX = {action.name: index for index, action in enumerate(ACTIONS)}
FUNCTIONS = tuple(action.run for action in ACTIONS)
FAULTS = tuple(index for index, action in enumerate(ACTIONS) if action.is_fault)
#: faults that a trigger fires at one broker
TARGETED = tuple(INDEX[name] for name in ("expire session", "kill", "cut power", "stop"))
