"""Which errors of the operating system mean that something has run out, and not that something is broken.

Owns that table. A shortage passes: the one who asked waits or is refused. Everything else of a disk is the
device's failure (A-20). A sync that ran short of memory is such a failure too: which pages it has written is
unknown, and a second one would not write them.
"""

import errno

#: No file handle was left, in this process or in the whole system: the operation has not begun.
_NO_HANDLE = frozenset({errno.EMFILE, errno.ENFILE})
#: No memory, or no turn now.
_NO_MEMORY = frozenset({errno.ENOMEM, errno.EAGAIN})
#: After these, lack of memory leaves the file unknown.
_SYNCS = frozenset({"flush", "truncate", "sync_folder"})
#: EAGAIN of a lock means that another process has it.
_LOCKS = frozenset({"lock_folder"})


def is_shortage(operation: str, number: int) -> bool:
    """True when `operation` of a disk failed with errno `number` because something ran out, and has changed
    nothing."""
    if number in _NO_HANDLE:
        return True
    return number in _NO_MEMORY and operation not in _SYNCS and operation not in _LOCKS
