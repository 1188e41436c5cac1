"""Wall clocks of nodes that are put wrong while they run, by libfaketime (Debian: apt-get install faketime).

The library is loaded with a node and reads from a file by how much the node's wall clock is off. Timers and
durations are on the monotonic clock, which stays right. Without the library there is no way: a time namespace
moves no wall clock, and to set the machine's would hit all that runs on it.
"""

from collections.abc import Mapping
from pathlib import Path

#: Of a node's folder; where there is none the node was started without the library.
CLOCK_FILE = "clock"
#: Most seconds that a clock is put off.
OFF_S_MAX = 366 * 86_400
_PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
_NAME = "libfaketimeMT.so.1"


def library() -> Path | None:
    """The library, where it is installed."""
    found = (file for place in _PLACES for file in sorted(Path("/").glob(f"{place[1:]}/{_NAME}")))
    return next(found, None)


def why_not() -> str:
    """Why no node's clock can be put wrong on this machine; empty when they can."""
    return "" if library() is not None else f"{_NAME} is not installed (Debian: apt-get install faketime)"


def environment(clock_file: Path) -> Mapping[str, str]:
    """Of a node whose clock is off by what the file says; empty without the file or the library."""
    loaded = library()
    if loaded is None or not clock_file.exists():
        return {}
    return {
        "LD_PRELOAD": str(loaded),
        "FAKETIME_TIMESTAMP_FILE": str(clock_file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def put_off(clock_file: Path, by_s: int) -> None:
    """From now on the clock is off by so many seconds; 0: right."""
    new = clock_file.with_name(clock_file.name + ".new")
    new.write_text(f"{by_s:+d}\n", encoding="ascii")
    new.replace(clock_file)  # a reader sees one or the other
