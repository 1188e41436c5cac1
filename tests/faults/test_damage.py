"""Damage belongs to one replica, and heals: no broker ends, nothing acknowledged is lost.

(what is damaged) x (the replica leads, follows, is the last) x (its broker stopped cleanly or was killed).
"""

from collections.abc import Callable
from itertools import product, starmap

import pytest

from holdfast.localcluster.faults import damage
from holdfast.localcluster.faults.fault import Fault
from holdfast.localcluster.faults.places import Field, Part, Place
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.faults.table import CLEAN, FOLLOWER, LAST, LEADER, UNCLEAN, Cell, Damage, Kind, Outcome, play

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("faults")]

SEED = 1


def flip(part: Part, place: Field | None = None) -> Damage:
    def make(cluster: LocalCluster, node: Node, partition: str) -> Fault:
        return damage.FlipBit(cluster, node, Place(part, partition), SEED, place)

    return make


def cut(part: Part, keep: float) -> Damage:
    def make(cluster: LocalCluster, node: Node, partition: str) -> Fault:
        return damage.CutFile(cluster, node, Place(part, partition), SEED, keep)

    return make


def remove(part: Part) -> Damage:
    def make(cluster: LocalCluster, node: Node, partition: str) -> Fault:
        return damage.RemoveFile(cluster, node, Place(part, partition), SEED)

    return make


KINDS = (
    Kind("payload", flip(Part.CLOSED_SEGMENT, Field.PAYLOAD)),
    Kind("length", flip(Part.CLOSED_SEGMENT, Field.LENGTH)),
    Kind("base-offset", flip(Part.CLOSED_SEGMENT, Field.BASE_OFFSET)),
    Kind("leader-epoch", flip(Part.CLOSED_SEGMENT, Field.LEADER_EPOCH)),
    Kind("first-segment-length", flip(Part.FIRST_SEGMENT, Field.LENGTH)),
    Kind("active-payload", flip(Part.ACTIVE_SEGMENT, Field.PAYLOAD)),
    Kind("active-cut", cut(Part.ACTIVE_SEGMENT, 0.5)),
    Kind("closed-cut", cut(Part.CLOSED_SEGMENT, 0.5)),
    Kind("first-segment-removed", remove(Part.FIRST_SEGMENT)),
    Kind("middle-segment-removed", remove(Part.CLOSED_SEGMENT)),
    Kind("index", flip(Part.INDEX), is_derived=True),
    Kind("index-cut", cut(Part.INDEX, 0.4), is_derived=True),
    Kind("index-removed", remove(Part.INDEX), is_derived=True),
    Kind("timeindex", flip(Part.TIME_INDEX), is_derived=True),
    Kind("snapshot", flip(Part.SNAPSHOT), is_derived=True),
    Kind("snapshot-cut", cut(Part.SNAPSHOT, 0.5), is_derived=True),
    Kind("epochs-emptied", cut(Part.LEADER_EPOCH_CHECKPOINT, 0), is_derived=True),
    Kind("epochs", flip(Part.LEADER_EPOCH_CHECKPOINT), is_derived=True),
    Kind("partition-metadata-emptied", cut(Part.PARTITION_METADATA, 0)),
    Kind("partition-metadata-removed", remove(Part.PARTITION_METADATA)),
)
PLACES, STARTS = (LEADER, FOLLOWER, LAST), (CLEAN, UNCLEAN)
CELLS = list(starmap(Cell, product(KINDS, PLACES, STARTS)))
#: each kind once; the others are further rows
EVERY_TIME = {
    Cell(kind, PLACES[number % len(PLACES)], STARTS[number % len(STARTS)])
    for number, kind in enumerate(KINDS)
}


@pytest.fixture(scope="module")
def outcome_of(shared: LocalCluster, request: pytest.FixtureRequest) -> Callable[[Cell], Outcome]:
    """Plays all cells of this session with the same start at once, when the first of them is asked for."""
    cells = [_cell_of(item) for item in request.session.items]
    outcomes: dict[Cell, Outcome] = {}

    def outcome(cell: Cell) -> Outcome:
        if cell not in outcomes:
            shared.up()
            outcomes.update(
                play(shared, [one for one in cells if one is not None and one.start == cell.start])
            )
        return outcomes[cell]

    return outcome


def _cell_of(item: pytest.Item) -> Cell | None:
    found = getattr(item, "callspec", None)
    cell = found.params.get("cell") if found is not None else None
    return cell if isinstance(cell, Cell) else None


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=str(cell), marks=[] if cell in EVERY_TIME else [pytest.mark.long])
        for cell in CELLS
    ],
)
def test_damage_stays_where_it_is(outcome_of: Callable[[Cell], Outcome], cell: Cell) -> None:
    outcome = outcome_of(cell)
    assert outcome.complaints == [], outcome.done
