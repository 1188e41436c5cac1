"""Properties of what operators are told: what has succeeded was committed while it was asked for."""

from holdfast.metadata.image import MetadataImage
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.load.operators import Act


class DoneIsCommitted(Property):
    """K20, R109: an act that has succeeded was so in some committed image since it was begun. What was asked
    for earlier, and whose answer was lost, may have undone it meanwhile."""

    name = "K20 DoneIsCommitted"

    def __init__(self) -> None:
        self._image = MetadataImage()
        #: the act that was under way when it was so
        self._done: Act | None = None

    def metadata_committed(self, seen: Observer) -> None:
        before, self._image = self._image, seen.image
        if seen.world.operator_queue.under_way is not None:
            act = seen.world.operator_queue.under_way[1]
            if act is not self._done and (act.is_done(before) or act.is_done(seen.image)):
                self._done = act

    def act_succeeded(self, seen: Observer, name: str, act: Act) -> None:
        if act is not self._done and not act.is_done(seen.image):
            seen.broken(self, None, f"operators were told that it is done: {name}")
