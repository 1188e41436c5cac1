"""Writes into the declarations of mutants what kills them: `killed_by="PROPERTY@SEED"` of `@mutant(...)`
and `@replacing(...)`.

Owns that one argument in the source files of this folder. Plays nothing.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

#: the argument that is written
_ARGUMENT = "killed_by"
#: the decorators of `sim.mutants.mutant` that have it
_DECLARE = ("mutant", "replacing")


def declare(kills: Mapping[str, str], folder: Path) -> list[Path]:
    """Write `{name of a mutant: PROPERTY@SEED}` into the modules in `folder`; returns those that changed.

    Raises: KeyError for mutants that no module there declares.
    """
    left, changed = dict(kills), []
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        text = _declared(source, left)
        if text != source:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    if left:
        raise KeyError(f"no module in {folder} declares {', '.join(sorted(left))}")
    return changed


def _declared(source: str, left: dict[str, str]) -> str:
    """The source of a module with what is in `left` for its mutants, which is taken out of it."""
    lines = source.splitlines(keepends=True)
    functions = [
        node for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    for function in reversed(functions):  # from the end, so that the positions of the others stay
        name = function.name.replace("_", "-")
        call = next((one for one in function.decorator_list if _is_declaration(one)), None)
        if call is None or name not in left:
            continue
        assert isinstance(call, ast.Call)
        value = f'"{left.pop(name)}"'
        old = next((one.value for one in call.keywords if one.arg == _ARGUMENT), None)
        if old is not None:
            _replace(lines, (old.lineno, old.col_offset), (old.end_lineno, old.end_col_offset), value)
        else:
            # behind the last argument, which may have a comma after it
            last = max(
                (*call.args, *(one.value for one in call.keywords)),
                key=lambda one: (one.end_lineno, one.end_col_offset),
            )
            _replace(
                lines,
                (last.end_lineno, last.end_col_offset),
                (last.end_lineno, last.end_col_offset),
                f", {_ARGUMENT}={value}",
            )
    return "".join(lines)


def _is_declaration(decorator: ast.expr) -> bool:
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id in _DECLARE
    )


def _replace(
    lines: list[str], start: tuple[int | None, int | None], end: tuple[int | None, int | None], text: str
) -> None:
    """Columns count bytes of UTF-8, as those of `ast` do."""
    (first, from_column), (last, to_column) = start, end
    assert first is not None
    assert last is not None
    before = lines[first - 1].encode()[:from_column]
    behind = lines[last - 1].encode()[to_column:]
    lines[first - 1 : last] = [(before + text.encode() + behind).decode()]
