"""What a sink says of records that were not acknowledged."""

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.batch import Batch, Compression
from holdfast.client.core.errors import ProduceFailed
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.sink import Outcomes
from holdfast.protocol.errors import ErrorCode


def batch(partition: int, outcome: DeliveryOutcome, base_offset: int = -1, count: int = 2) -> Batch:
    made = Batch("t", partition, 0, 1_000, Compression.NONE, 0, 0)
    made.count, made.outcome, made.base_offset = count, outcome, base_offset
    made.error, made.error_text = ErrorCode.REQUEST_TIMED_OUT, "no answer in time"
    return made


@pytest.mark.parametrize(
    ("partition", "outcome", "sentence"),
    [
        (0, DeliveryOutcome.INFO, "t-0: 2 records were not acknowledged and may be in the log .*at offset 8"),
        (
            0,
            DeliveryOutcome.FAIL,
            "t-0: 2 records were not acknowledged and are not in the log .*at offset 8",
        ),
        (1, DeliveryOutcome.FAIL, "t-1: .*of those that are acknowledged there none of this task is"),
    ],
)
def test_the_first_failure_names_partition_and_offset(
    partition: int, outcome: DeliveryOutcome, sentence: str
) -> None:
    outcomes = Outcomes()
    outcomes.heard(batch(0, DeliveryOutcome.OK, base_offset=7))
    outcomes.check()
    outcomes.heard(batch(partition, outcome))
    outcomes.heard(batch(5, outcome))
    with pytest.raises(ProduceFailed, match=sentence) as raised:
        outcomes.check()
    assert raised.value.may_be_appended == (outcome is DeliveryOutcome.INFO)
    assert (outcomes.records, outcomes.ends) == (2, {("t", 0): 9})
