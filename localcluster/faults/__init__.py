"""Faults on a local cluster, each of which can be undone, also after a crash of the process that made it.

`fault.py` is the interface and `journal.py` the file that makes healing certain; one module for each kind of
fault; `targets.py` finds nodes by what they do. docs/faults.md has the table.
"""
