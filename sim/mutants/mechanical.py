"""Mechanical mutants: production code with one condition, bound or call broken, found by reading its syntax.

Owns which changes there are and how one is put into a running process: the code of the function that holds
it is exchanged, and put back. What developers think of as a rule is in the modules beside this one; these
changes are not chosen by them, and do not share their blind spots.
"""

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pkgutil import walk_packages
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: of production code, what a simulated node or client runs
PACKAGES = ("rpc", "storage", "raft", "metadata", "broker", "controller", "client")

_SHOWN = 70
#: of calls that are not worth to be left out: they tell people
_TELLS = ("_log.", ".note(", ".observe(", ".inc(", "super().")
_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_ENDS = {"min": "max", "max": "min"}


class NotExchangeable(Exception):
    """The function with the change cannot take the place of the one without it."""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One place of production code, and what is wrong there."""

    module: str
    #: of all in the module
    number: int
    line: int
    #: the outermost function around it
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.text}"


def modules(packages: tuple[str, ...] = PACKAGES) -> list[str]:
    """Names of their modules."""
    return [
        found.name
        for package in packages
        for found in walk_packages(import_module(f"holdfast.{package}").__path__, f"holdfast.{package}.")
        if not found.ispkg
    ]


def changes_of(module: str) -> list[SourceChange]:
    """Every change that can be made to a module, in the order of its text."""
    rewriter = _Rewriter(module, None)
    rewriter.visit(ast.parse(source_of(module)))
    return rewriter.changes


def path_of(module: str) -> str:
    """Its file, as its code names it."""
    return inspect.getfile(import_module(module))


@contextmanager
def applied(change: SourceChange) -> Iterator[None]:
    """Wrong inside, right again afterwards. Raises: NotExchangeable."""
    module = import_module(change.module)
    tree = ast.parse(source_of(change.module))
    rewriter = _Rewriter(change.module, change.number)
    rewriter.visit(tree)
    assert rewriter.changes[change.number] == change, f"the code has changed: {change}"
    compiled = compile(ast.fix_missing_locations(tree), path_of(change.module), "exec")
    function, original = _function(module, change.function, change.line)
    wrong = next(
        (
            code
            for code in codes(compiled)
            if code.co_qualname == change.function and code.co_firstlineno == original.co_firstlineno
        ),
        None,
    )
    if wrong is None or wrong.co_freevars != original.co_freevars:
        raise NotExchangeable(str(change))
    function.__code__ = wrong
    try:
        yield
    finally:
        function.__code__ = original


@cache
def source_of(module: str) -> str:
    """Its text."""
    return inspect.getsource(import_module(module))


def codes(code: CodeType) -> Iterator[CodeType]:
    """All code inside compiled code, outer before inner."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def plain(found: Any) -> Any:
    """What a name of a class or module stands for, without its wrappers; of a property the getter."""
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    elif isinstance(found, cached_property):
        found = found.func
    return inspect.unwrap(found) if callable(found) else found


def _function(module: ModuleType, name: str, line: int) -> tuple[FunctionType, CodeType]:
    """The function of that name around the line, without its wrappers. Raises: NotExchangeable."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part)
        if found is None:
            raise NotExchangeable(name)
    if isinstance(found, property):
        parts = [part for part in (found.fget, found.fset) if part is not None]
        found = max(
            (part for part in parts if part.__code__.co_firstlineno <= line),
            key=lambda part: part.__code__.co_firstlineno,
            default=None,
        )
    found = plain(found)
    if not inspect.isfunction(found) or found.__module__ != module.__name__:
        raise NotExchangeable(name)
    return found, found.__code__


class _Rewriter(ast.NodeTransformer):
    """Lists all changes, and makes one of them."""

    def __init__(self, module: str, number: int | None) -> None:
        self.changes: list[SourceChange] = []
        self._module = module
        self._number = number
        #: classes and functions around
        self._names: list[str] = []
        #: how many of them until the outermost function
        self._depth: int | None = None

    def _is_it(self, node: ast.stmt | ast.expr, text: str) -> bool:
        """Note a change; whether it is the one that is to be made."""
        if self._depth is None:
            return False  # runs once, at the import
        function = ".".join(self._names[: self._depth])
        number = len(self.changes)
        self.changes.append(SourceChange(self._module, number, node.lineno, function, text))
        return number == self._number

    # --- where it is -----------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._names.append(node.name)
        is_outermost = self._depth is None
        if is_outermost:
            self._depth = len(self._names)
        node.body = [self.visit(statement) for statement in node.body]
        if is_outermost:
            self._depth = None
        self._names.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    # --- what is wrong ---------------------------------------------------------------------------------

    def _visit_condition(self, node: ast.If | ast.IfExp) -> ast.AST:
        text = _short(node.test)
        self.generic_visit(node)
        for value in (True, False):
            if self._is_it(node, f"`{text}` is {value}"):
                node.test = ast.copy_location(ast.Constant(value), node.test)
        return node

    visit_If = visit_IfExp = _visit_condition

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        texts = [_short(value) for value in node.values]
        word = "and" if isinstance(node.op, ast.And) else "or"
        self.generic_visit(node)
        for number, text in enumerate(texts):
            if self._is_it(node.values[number], f"without `{text}` among its {word}s"):
                rest = [value for at, value in enumerate(node.values) if at != number]
                return rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(node.op, rest), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        text = _short(node)
        self.generic_visit(node)
        other = _BOUNDS.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if other is not None and self._is_it(node, f"the bound of `{text}` is off by one"):
            node.ops = [other()]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        text = _short(node)
        self.generic_visit(node)
        is_step = isinstance(node.op, (ast.Add, ast.Sub)) and isinstance(node.right, ast.Constant)
        if is_step and self._is_it(node, f"`{text}` without its last number"):
            return node.left
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        text = _short(node)
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Name) and function.id in _ENDS:
            if self._is_it(node, f"the other end of `{text}`"):
                function.id = _ENDS[function.id]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not any(word in text for word in _TELLS):
            return self._without(node, text)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        # an attribute that no code sets at first is no rule broken
        is_kept = isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
        return self._without(node, text) if is_kept and "__init__" not in self._names else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        return self._without(node, text)

    def _without(self, node: ast.stmt, text: str) -> ast.AST:
        if self._is_it(node, f"without `{_cut(text)}`"):
            return ast.copy_location(ast.Pass(), node)
        return node


def _short(node: ast.expr) -> str:
    return _cut(ast.unparse(node))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
