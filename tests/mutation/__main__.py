"""`make mutants`: does some test fail for each rule of the controller that is deleted or flipped?

mutmut (settings in pyproject.toml) changes one expression at a time of the modules that keep R1-R13 and
runs the controller's tests on each. What survives must stand in survivors.txt with a reason; one that does
not, or one that is listed and killed meanwhile, is an error. It works on a copy in mutants/.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).with_name("survivors.txt")
LOG = ROOT / "mutants" / "mutmut.log"

#: function, lines taken away, lines put in
Change = tuple[str, tuple[str, ...], tuple[str, ...]]


def mutmut(*words: str) -> str:
    """Run mutmut; its standard output."""
    command = [str(Path(sys.executable).with_name("mutmut")), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def shown(mutant: str) -> Change:
    """What a mutant changes; its own number is another after each edit of the module."""
    lines = [
        line for line in mutmut("show", mutant).splitlines() if not line.startswith(("---", "+++", "# "))
    ]
    function = re.sub(r"__mutmut_\d+$", "", mutant).removeprefix("controller.").replace(".x_", ".")
    return (
        function,
        tuple(line[1:].strip() for line in lines if line.startswith("-")),
        tuple(line[1:].strip() for line in lines if line.startswith("+")),
    )


def accepted() -> dict[Change, str]:
    """The survivors of the list with their reasons: blocks of `# why`, function, `- line`, `+ line`."""
    found: dict[Change, str] = {}
    for block in SURVIVORS.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip()]
        why = " ".join(line[2:] for line in lines if line.startswith("# "))
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            continue
        gone = tuple(line[2:].strip() for line in rest[1:] if line.startswith("- "))
        come = tuple(line[2:].strip() for line in rest[1:] if line.startswith("+ "))
        found[rest[0].strip(), gone, come] = why
    return found


def text(change: Change) -> str:
    """A change as it would stand in the list."""
    function, gone, come = change
    return "\n".join([function, *(f"- {line}" for line in gone), *(f"+ {line}" for line in come)])


def main() -> int:
    """Run all mutants, print the score and what is not as listed; 1 if there is such."""
    # mutmut copies over what an earlier run left and never takes anything away: renamed tests would live on
    shutil.rmtree(LOG.parent, ignore_errors=True)
    LOG.parent.mkdir()
    LOG.write_text(mutmut("run"), encoding="utf-8")
    mutmut("export-cicd-stats")
    stats = json.loads((ROOT / "mutants" / "mutmut-cicd-stats.json").read_text(encoding="utf-8"))
    unkilled = [
        line.split(":")[0].strip()
        for line in mutmut("results").splitlines()
        if re.search(r": (survived|no tests|suspicious|skipped)$", line)
    ]
    seen = {shown(mutant) for mutant in unkilled}
    known = accepted()
    killed = stats["killed"] + stats["timeout"] + stats["segfault"]
    print(
        f"{stats['total']} mutants, {killed} killed ({killed / stats['total']:.1%}), {len(unkilled)} survived"
    )
    for change in sorted(seen - set(known)):
        print(f"\nsurvived, and is not listed:\n{text(change)}")
    for change in sorted(set(known) - seen):
        print(f"\nlisted, but is no survivor any more:\n{text(change)}")
    return 1 if seen != set(known) else 0


if __name__ == "__main__":
    sys.exit(main())
