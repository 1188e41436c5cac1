"""What a consumer was given, on disk."""

import json

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.poll_rows import SUFFIX, Polled
from holdfast.client.poll_ledger import PollLedger
from holdfast.runtime.memory.machine import memory_runtime


async def test_a_poll_is_in_the_file_when_it_was_written_down() -> None:
    runtime, world = memory_runtime()
    ledger = PollLedger("/ledger", "run", "c", runtime=runtime)
    await ledger.open()
    assert ledger.path.startswith("/ledger/run.c.")
    assert ledger.path.endswith(SUFFIX)
    ledger.begin_session()
    ledger.write([Polled("t", 0, 1, None, [ConsumerRecord("t", 0, 0, 3, 1_000, None, b"x", ())])])
    ledger.write([])
    file = await world.disk.open(ledger.path, create=False)
    (line,) = file.read_at(0, file.size).splitlines()
    assert json.loads(line)["records"][0][:2] == [0, 3]
    await ledger.close()
