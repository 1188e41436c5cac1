"""`python -m holdfast.tools.commit_message FILE` checks a commit message: the commit-msg hook.

The subject is `area: what`, at most 72 characters. The area is a folder in lower case (`broker`,
`sim/checks`, `docs`) or several of them (`broker, raft`). A blank line separates the subject from the body,
which says why.
"""

import re
import sys
from pathlib import Path

SUBJECT_MAX = 72
_AREA = r"[a-z0-9_.-]+(/[a-z0-9_.-]+)*"
_SUBJECT = re.compile(rf"{_AREA}(, {_AREA})*: \S.*")
#: subjects that git writes; the commit they stand for has a subject of its own
_BY_GIT = re.compile(r"Merge |Revert \"|(fixup|squash|amend)! ")


def problems(message: str) -> list[str]:
    """A sentence for each rule that `message` breaks; comment lines do not count."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    if not lines:
        return ["the message is empty"]
    subject = lines[0]
    found = []
    if not _BY_GIT.match(subject):
        if not _SUBJECT.fullmatch(subject):
            found.append("the subject must be `area: what`, the area a folder in lower case")
        if len(subject) > SUBJECT_MAX:
            found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX} are allowed")
    if len(lines) > 1 and lines[1]:
        found.append("a blank line must follow the subject")
    return found


def main(arguments: list[str]) -> int:
    """Print what is wrong with the message in the file; exit 1 when something is."""
    (path,) = arguments
    found = problems(Path(path).read_text(encoding="utf-8"))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
