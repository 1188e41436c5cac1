"""Whose turn it is in the answers to a follower: a second opinion, made where a leader's core is heard.

Owns what was given to others while a row had to wait. Reads what is due at the moment of an answer: by the
end of a step it may be another.
"""

from collections import Counter

from holdfast.broker.core.events import AnswerFetch
from holdfast.broker.core.requests.fetch_session import FollowerSession
from holdfast.metadata.ids import PartitionId

#: answers to another row while one is due. That row may have been due before this one, and one that had no
#: room when it was read was none.
_TURNS = 2


class Turns:
    """The rows that wait at a leader, and how often others have had their turn since they wait."""

    def __init__(self) -> None:
        #: {follower: (its session, {row that is due: {other row: answers since then}})}
        self._passed_over: dict[int, tuple[object, dict[PartitionId, Counter[PartitionId]]]] = {}

    def missed(self, effect: AnswerFetch) -> list[str]:
        """Who has had to wait for too long, after an answer that is about to go out."""
        session = effect.session
        assert isinstance(session, FollowerSession)
        if not session.due_rows:
            self._passed_over.pop(session.replica_id, None)
            return []
        former, counts = self._passed_over.get(session.replica_id, (session, {}))
        if former is not session:
            counts = {}
        answered = [PartitionId(row.topic_id, row.partition_index) for row in effect.rows if row.max_bytes]
        now = {key: counts.get(key, Counter()) for key in session.due_rows}
        self._passed_over[session.replica_id] = session, now
        missed = []
        for key, others in now.items():
            others.update(answered)
            missed += [
                f"has answered {other} {count} times to b{session.replica_id} while {key} was due"
                for other, count in others.items()
                if count > _TURNS
            ]
        return missed
