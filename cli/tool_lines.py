"""What the verifiable tools print: JSON lines on stdout, for a program that reads them."""

import json
import os
import sys
from typing import Any


class ToolLines:
    """Lines of one run, until their reader is gone."""

    def __init__(self) -> None:
        self.is_heard = True

    def say(self, **line: Any) -> None:
        """Print one line at once; nothing once the reader is gone."""
        if not self.is_heard:
            return
        try:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has gone: end in order, with whole files. The buffer's rest has to go somewhere.
            self.is_heard = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
