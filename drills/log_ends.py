"""Where a replica's log ends on disk, read from its segment files with the validator's own decoder.

What recovery will keep: the prefix before the first batch that is torn, damaged or out of place (A-22),
without segments that were merged into the one before them.
"""

from contextlib import closing
from pathlib import Path

from holdfast.durability.segments import Gone, Torn, read_log


def log_end(folder: Path) -> int:
    """The offset behind the last whole batch; 0 without a folder or a segment."""
    if not folder.is_dir():
        return 0
    end: int | None = None
    with closing(read_log(str(folder))) as log:
        for path, batch in log:
            if isinstance(batch, Gone):
                continue
            if batch is None:  # an empty segment
                end = int(path.stem) if end is None else end
                continue
            if isinstance(batch, Torn) or not batch.crc_ok or end not in (None, batch.base_offset):
                break
            end = batch.last_offset + 1
    return end or 0
