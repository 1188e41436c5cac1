"""Patches of source text: while a mutant is applied, a piece of one function's text is another one.

Owns how changed text gets into a running process: its module is compiled, and the function takes the code
that results. A caller that imported the function by name runs the wrong code, too.
"""

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from holdfast.sim.mutants.mechanical import codes, path_of, plain, source_of


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """`old` is `new` in the text of one function. Without `old`, `new` stands before its first statement."""

    #: the class or module in whose own namespace the function stands
    owner: Any
    name: str
    old: str
    new: str

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.owner.__name__}.{self.name}"

    def function(self) -> FunctionType:
        """The one that is changed; of a property the getter. Raises: AssertionError when it is not there."""
        assert self.name in vars(self.owner), f"{self.place} is not there any more: mend the mutant"
        found = plain(vars(self.owner)[self.name])
        assert isinstance(found, FunctionType), f"{self.place} is no function: mend the mutant"
        return found

    def text(self, source: str) -> str:
        """The source of the module with it. Raises: AssertionError when the text has changed."""
        node = _definition(source, self.function().__qualname__)
        lines = source.splitlines(keepends=True)
        if not self.old:
            at = node.body[1 if ast.get_docstring(node) else 0]
            indent = " " * at.col_offset
            added = "".join(f"{indent}{line}\n" for line in self.new.splitlines())
            return "".join((*lines[: at.lineno - 1], added, *lines[at.lineno - 1 :]))
        assert node.end_lineno is not None
        body = "".join(lines[node.lineno - 1 : node.end_lineno])
        count = body.count(self.old)
        assert count == 1, f"{self.place} has {count} times {self.old!r}: mend the mutant"
        body = body.replace(self.old, self.new)
        return "".join((*lines[: node.lineno - 1], body, *lines[node.end_lineno :]))


def patch(owner: Any, name: str, old: str, new: str) -> SourcePatch:
    """In the text of the function `owner.name`, where `old` stands exactly once, `new` stands."""
    assert old
    return SourcePatch(owner, name, old, new)


def begin(owner: Any, name: str, first: str) -> SourcePatch:
    """The function `owner.name` begins with these statements."""
    return SourcePatch(owner, name, "", first)


@contextmanager
def patched(patches: Iterable[SourcePatch]) -> Iterator[None]:
    """All of them inside, none afterwards. Those of one module make one text, in their order.

    Raises: AssertionError when one does not fit its function.
    """
    texts: dict[str, str] = {}
    functions: dict[FunctionType, None] = {}
    for one in patches:
        function = one.function()
        module = function.__module__
        texts[module] = one.text(texts.get(module) or source_of(module))
        functions[function] = None
    compiled = {module: compile(text, path_of(module), "exec") for module, text in texts.items()}
    done: list[tuple[FunctionType, CodeType]] = []
    try:
        for function in functions:
            name, right = function.__qualname__, function.__code__
            wrong = next(code for code in codes(compiled[function.__module__]) if code.co_qualname == name)
            assert wrong.co_freevars == right.co_freevars, f"{name} cannot be exchanged: mend the mutant"
            function.__code__ = wrong
            done.append((function, right))
        yield
    finally:
        for function, right in done:
            function.__code__ = right


def _definition(source: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The first function of that qualified name: a getter is before its setter."""
    nodes: list[ast.stmt] = ast.parse(source).body
    *around, last = name.split(".")
    for part in around:
        nodes = next(node.body for node in nodes if isinstance(node, ast.ClassDef) and node.name == part)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return next(node for node in nodes if isinstance(node, kinds) and node.name == last)
