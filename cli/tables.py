"""Tables of text: columns as wide as what is in them, nothing cut off."""

from collections.abc import Sequence


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], *, gap: str = "  ") -> list[str]:
    """The heads and the rows, left-aligned, `gap` between the columns, no blanks at the ends."""
    widths = [max(len(line[i]) for line in (heads, *rows)) for i in range(len(heads))]
    return [
        gap.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *rows)
    ]
