"""`python -m holdfast.tools.mutant_docs` rewrites docs/mutants.md from the declarations. For developers."""

from pathlib import Path

from holdfast.sim.mutants.page import page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mutants.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
