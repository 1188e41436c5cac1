"""`holdfast validate` in a process that is killed, and its Java with it, at a named moment of a micro-batch.

`python -m tests.spark.dying_follower MOMENT FILE ARGUMENT...`: MOMENT is `before` or `after` this file of the
state folder takes its place.
"""

import os
import signal
import sys
from pathlib import Path

from holdfast.cli.__main__ import main
from holdfast.durability import micro_batches
from holdfast.durability.state_files import write_whole


def arm(moment: str, name: str) -> None:
    """Replace what writes the file."""

    def write_and_die(path: Path, text: str) -> None:
        if moment == "after" or path.name != name:
            write_whole(path, text)
        if path.name == name:
            os.killpg(0, signal.SIGKILL)

    vars(micro_batches)["write_whole"] = write_and_die


if __name__ == "__main__":
    arm(*sys.argv[1:3])
    sys.argv[1:] = sys.argv[3:]
    main()
