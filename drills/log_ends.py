"""Where a replica's log ends on disk, read from its segment files with the validator's own decoder.

What recovery will keep: the prefix before the first batch that is torn, damaged or out of place (A-22).
"""

from pathlib import Path

from holdfast.durability.segments import Torn, read_segment, segment_paths


def log_end(folder: Path) -> int:
    """The offset behind the last whole batch; 0 without a folder or a batch."""
    if not folder.is_dir():
        return 0
    end: int | None = None
    for path in segment_paths(str(folder)):
        for batch in read_segment(path.read_bytes()):
            if isinstance(batch, Torn) or not batch.crc_ok or end not in (None, batch.base_offset):
                return end or 0
            end = batch.last_offset + 1
    return end or 0
