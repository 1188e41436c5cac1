"""`python -m holdfast.tools.protocol_docs` rewrites docs/protocol.md from the schemas. For developers."""

from pathlib import Path

from holdfast.metadata.records import RECORD_CLASSES
from holdfast.metadata.snapshot_records import SNAPSHOT_RECORD_CLASSES
from holdfast.protocol.schema.documentation import render

PAGE = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(RECORD_CLASSES | SNAPSHOT_RECORD_CLASSES))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
