"""`python -m holdfast.localcluster.fork_server ROOM ENTRY MODULE...`: forks processes with all loaded.

Loads the modules, then forks for each line of standard input (JSON of `launch.ForkLauncher`), answers with
the pid and runs ENTRY (`module:function`) in the fork. At the end of the input it kills what it has started
and ends. It has one thread, since a fork copies no other. ROOM is a long word: the command lines of forks are
written over it.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


def main(entry: str, *modules: str) -> None:
    """Serve until standard input ends."""
    for module in modules:
        importlib.import_module(module)
    name, _, function = entry.partition(":")
    run = getattr(importlib.import_module(name), function)
    gc.collect()
    gc.freeze()  # what forks have in common stays in common
    children: set[int] = set()

    def reap(*_: Any) -> None:
        # Only children that were reaped may have given their pid to another process.
        while children:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            children.discard(pid)

    signal.signal(signal.SIGCHLD, reap)
    for line in iter(sys.stdin.buffer.readline, b""):
        order = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            _serve(run, order)
        children.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for pid in sorted(children):
        os.kill(pid, signal.SIGKILL)
    for pid in sorted(children):
        os.waitpid(pid, 0)


def _serve(run: Callable[..., Any], order: dict[str, Any]) -> NoReturn:
    """In the fork: become a process of its own, run, end."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.setsid()
        log = os.open(order["log_file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(log)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        _show_as([sys.executable, "-P", "-m", "holdfast.cli", *order["words"]])
        run(args=order["words"], prog_name="holdfast")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  a process of its own: it ends with a traceback, as any
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _show_as(words: Sequence[str]) -> None:
    """Write a command line over this process's own: tools, `ps` and people tell nodes apart by it."""
    with open("/proc/self/stat", encoding="ascii") as file:
        fields = file.read().rpartition(") ")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    if start and len(text) <= end - start:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))


if __name__ == "__main__":
    main(*sys.argv[2:])
