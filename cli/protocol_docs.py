"""`python -m cli.protocol_docs` rewrites docs/protocol.md from the schemas. For developers."""

from pathlib import Path

from metadata.records import RECORD_CLASSES
from protocol.documentation import render

PAGE = Path(__file__).parent.parent / "docs" / "protocol.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(RECORD_CLASSES))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
