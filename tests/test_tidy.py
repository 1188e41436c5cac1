"""The shape of the code, where linters do not look: one habit a test; a failure names file and line."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
NODES = ("protocol", "rpc", "storage", "metadata", "raft", "controller", "broker", "client", "kafka_listener")
TOOLS = ("cli", "localcluster", "scenario", "tools", "bench", "durability", "drills", "report")
#: above these there is a second idea somewhere; most are far below
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 80
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".sh", ".cfg", ".properties", ""}
LEFT_OUT = {"__pycache__", "build", "dist", "node_modules"}

#: pure modules that are parts of a bigger one and are tested through it: {module: test below tests/unit}
TESTED_WITH = {
    "holdfast.broker.core.counts": "broker/test_replica_manager.py",
    "holdfast.broker.core.groups.group": "broker/groups/test_membership.py",
    "holdfast.broker.core.groups.membership": "broker/groups/test_membership.py",
    "holdfast.broker.core.groups.offsets": "broker/groups/test_offsets.py",
    "holdfast.broker.core.groups.records": "broker/groups/test_offsets.py",
    "holdfast.broker.core.groups.shard": "broker/groups/test_offsets.py",
    "holdfast.broker.core.groups.snapshot": "broker/groups/test_snapshots.py",
    "holdfast.broker.core.groups.timers": "broker/groups/test_membership.py",
    "holdfast.broker.core.registration.known_brokers": "broker/test_replica_manager.py",
    "holdfast.broker.core.replicas.followed_row": "broker/test_fetcher.py",
    "holdfast.broker.core.replicas.high_watermarks": "broker/test_replica_manager.py",
    "holdfast.broker.core.replicas.log_openings": "broker/test_replica_manager.py",
    "holdfast.broker.core.requests.request_paths": "broker/test_replica_manager.py",
    "holdfast.client.core.groups.offset_requests": "client/groups/test_membership.py",
    "holdfast.client.core.partition_fetch": "client/test_fetcher.py",
    "holdfast.controller.core.pending_writes": "controller/test_quorum_controller.py",
    "holdfast.kafka_listener.core.apis.cluster": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.configs": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.fetch": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.group_offsets": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.groups": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.metadata": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.offsets": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.partitions": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.produce": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.producer_ids": "kafka_listener/test_translations.py",
    "holdfast.kafka_listener.core.apis.topics": "kafka_listener/test_translations.py",
    "holdfast.protocol.schema.compiler": "protocol/test_schema.py",
    "holdfast.protocol.schema.types": "protocol/test_schema.py",
    "holdfast.raft.core.following": "raft/test_scenarios.py",
    "holdfast.raft.core.serving": "raft/test_scenarios.py",
    "holdfast.storage.core.log_tap": "storage/test_log.py",
}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def files(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(("holdfast", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def nodes(path: Path, kind: type[ast.AST] | tuple[type[ast.AST], ...] = ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(parse(path)) if isinstance(node, kind))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of attributes, calls in it as `()`; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    return ""


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in nodes(path, ast.Call):
        assert isinstance(node, ast.Call)
        yield node, dotted(node.func)


def test_nodes_use_the_event_loop_for_futures_only() -> None:
    """Its clock, tasks and threads belong to the runtime (D2, D15)."""
    forbidden = re.compile(
        r"(^|[._])(loop|get_running_loop\(\)|get_event_loop\(\))"
        r"\.(time|call_later|call_at|create_task|run_in_executor|call_soon_threadsafe|create_connection|create_server)$"
    )
    found = [
        f"{where(path, call)} {name}"
        for path in files(*NODES)
        for call, name in calls(path)
        if forbidden.search(name)
    ]
    assert not found


def test_nodes_open_no_files_by_themselves() -> None:
    found = [
        where(path, call)
        for path in files(*NODES)
        for call, name in calls(path)
        if name in ("open", "io.open")
    ]
    assert not found


class SetExpressions:
    """Knows which expressions of a module are sets, as far as literals, calls and annotations tell."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and self._is_set_type(node.annotation):
                self._names.add(dotted(node.target))
            elif (
                isinstance(node, ast.arg)
                and node.annotation is not None
                and self._is_set_type(node.annotation)
            ):
                self._names.add(node.arg)

    @staticmethod
    def _is_set_type(annotation: ast.expr) -> bool:
        outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        return dotted(outer) in ("set", "frozenset")

    def is_set(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Set, ast.SetComp)):
            return True
        if isinstance(node, ast.Call):
            return dotted(node.func) in ("set", "frozenset")
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
            return self.is_set(node.left) or self.is_set(node.right)
        return dotted(node) in self._names


#: what gives the same answer in any order
_ORDERLESS = {"sorted", "set", "frozenset", "any", "all", "min", "max", "sum", "len"}
#: what keeps the order of what it is given
_ORDERED = {"list", "tuple", "enumerate", "iter", "next", "map", "filter", "zip"}


def iterated_in_order(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions whose order of iteration can be seen."""
    excused: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in _ORDERLESS:
            excused.update(id(argument) for argument in node.args)
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)) and id(node) not in excused:
            yield from (generator.iter for generator in node.generators)
        elif isinstance(node, ast.Call) and (
            dotted(node.func) in _ORDERED
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "join")
        ):
            if id(node) not in excused:
                yield from node.args


def test_nodes_never_iterate_over_a_set() -> None:
    """Its order differs from process to process; code that sends, schedules or elects sorts first (D15)."""
    found = []
    for path in files(*NODES):
        sets = SetExpressions(parse(path))
        found += [
            where(path, expression)
            for expression in iterated_in_order(parse(path))
            if sets.is_set(expression)
        ]
    assert not found


def test_nothing_happens_behind_the_back_of_the_caller() -> None:
    """Shutdown is an explicit coroutine: no `__del__`, no await in `finally` (D15)."""
    found = []
    for path in files(*NODES):
        for node in nodes(path, (ast.FunctionDef, ast.Try)):
            if isinstance(node, ast.FunctionDef) and node.name == "__del__":
                found.append(where(path, node))
            if isinstance(node, ast.Try):
                last = [inner for statement in node.finalbody for inner in ast.walk(statement)]
                found += [where(path, inner) for inner in last if isinstance(inner, ast.Await)]
    assert not found


def _catches_cancellation(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind).endswith(("CancelledError", "BaseException")) for kind in kinds)


def test_the_simulator_replaces_no_method_of_a_node() -> None:
    """It observes nodes through taps. Only mutants replace code; tiny limits are numbers of modules."""
    found = []
    for path in files("sim"):
        if "mutants" in path.relative_to(ROOT).parts or path == ROOT / "sim" / "cluster" / "limits.py":
            continue
        functions = {getattr(one, "name", "") for one in nodes(path, (ast.FunctionDef, ast.AsyncFunctionDef))}
        for node in nodes(path, (ast.Assign, ast.Call)):
            if isinstance(node, ast.Call):
                if dotted(node.func) == "setattr":
                    found.append(where(path, node))
                continue
            assert isinstance(node, ast.Assign)
            is_function = isinstance(node.value, ast.Lambda) or dotted(node.value) in functions
            for target in node.targets:
                place = target.value if isinstance(target, ast.Subscript) else target
                is_others = isinstance(place, ast.Attribute) and dotted(place.value) not in ("self", "cls")
                if is_function and is_others:
                    found.append(where(path, node))
        if "method-assign" in path.read_text():
            found.append(str(path.relative_to(ROOT)))
    assert not found


def test_cancellation_is_never_swallowed() -> None:
    found = []
    for path in files(*NODES, "runtime"):
        for handler in nodes(path, ast.ExceptHandler):
            assert isinstance(handler, ast.ExceptHandler)
            raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
            if _catches_cancellation(handler) and not raises:
                found.append(where(path, handler))
    assert not found


def test_files_and_functions_have_one_idea() -> None:
    found = []
    for path in files(*NODES, *TOOLS, "runtime"):
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES_MAX:
            found.append(f"{path.relative_to(ROOT)}: {lines} lines")
        for node in nodes(path, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                found.append(f"{where(path, node)} {node.name}: {length} lines")
    assert not found


def text_files() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        is_ours = not LEFT_OUT & set(parts) and not parts[0].startswith("demo-")
        is_hidden = parts[0].startswith(".") and parts[0] != ".ci" and len(parts) > 1
        if is_ours and not is_hidden and path != Path(__file__):
            if path.suffix in TEXT_SUFFIXES and path.is_file():
                yield path


def lines_with(pattern: str, paths: Iterable[Path]) -> list[str]:
    expression = re.compile(pattern)
    found = []
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT)
        found += [f"{name}:{number}" for number, line in enumerate(lines, 1) if expression.search(line)]
    return found


def test_texts_name_the_actor() -> None:
    """A broker, a client, an operator: never one of five words that leave open who it is. Names of mutants,
    words with hyphens between, may have them."""
    words = ("no" + "body", "some" + "body", "who" + "ever", "every" + "body", "what" + "ever")
    pattern = rf"(?i)\b(?<!-)({'|'.join(words)})\b(?!-)"
    pages = (ROOT / "docs").glob("*.md")
    assert not lines_with(pattern, [*files(*NODES, *TOOLS, "runtime", "sim", "tests", "examples"), *pages])


#: Tests that need a program of others or this project's history, which not every machine has: they say why
#: they are skipped.
FOREIGN_PROGRAMS = (
    "tests/browser/",
    "tests/containers/",
    "tests/kafka_clients/",
    "tests/prometheus/",
    "tests/versions/",
)


def test_nothing_is_left_for_later() -> None:
    assert not lines_with(r"\b(TODO|FIXME|XXX|HACK)\b", text_files())
    assert not lines_with(
        r"\bNotImplemented(Error)?\b|pytest\.(skip|xfail|mark\.(skip|xfail))",
        [
            path
            for path in files(*NODES, *TOOLS, "runtime", "tests")
            if not path.relative_to(ROOT).as_posix().startswith(FOREIGN_PROGRAMS)
        ],
    )


def test_no_machine_left_its_paths_behind() -> None:
    here = [str(parent) for parent in ROOT.parents if len(parent.parts) > 1]
    names = [
        "/root/",
        "/home/[a-z]",
        r"\.\./shared",
        *(re.escape(parent) + "/" for parent in here if parent != "/tmp"),
    ]
    assert not lines_with("|".join(names), text_files())


# --- pure modules ----------------------------------------------------------------------------------------


def forbidden_in_cores() -> set[str]:
    """What pure modules may not import, as import-linter reads it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for entry in settings["tool"]["importlinter"]["contracts"]:
        if entry["name"].startswith("what lies in core/"):
            return set(entry["forbidden_modules"])
    raise AssertionError("pyproject.toml has no contract for pure modules")


def is_pure(path: Path) -> bool:
    """It lies in protocol/, in metadata/ or in a folder core/."""
    folders = path.relative_to(ROOT).parts[:-1]
    return folders[0] in ("protocol", "metadata") or folders[1:2] == ("core",)


def pure_modules() -> list[Path]:
    return [path for path in files(*NODES) if is_pure(path)]


@cache
def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in nodes(path, (ast.Import, ast.ImportFrom)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


@cache
def is_async(path: Path) -> bool:
    return any(True for _ in nodes(path, (ast.AsyncFunctionDef, ast.Await)))


def test_pure_modules_are_synchronous() -> None:
    assert [str(path.relative_to(ROOT)) for path in pure_modules() if is_async(path)] == []


def test_every_module_that_could_be_pure_lies_in_a_core() -> None:
    """A module of a node without async code that imports only pure ones belongs into the `core/` folder."""
    forbidden = forbidden_in_cores()
    pure = {module_name(path) for path in pure_modules()}
    candidates = {
        module_name(path): imports(path)
        for path in files(*NODES)
        if not is_async(path) and not {name.split(".")[0] for name in imports(path)} & forbidden
    }
    ours = {module_name(path) for path in files(*NODES, "runtime")} - {
        "holdfast.runtime.api",
        "holdfast.runtime.stats",
    }
    while True:  # what imports a shell is part of the shell
        shells = ours - candidates.keys()
        mixed = [name for name, imported in candidates.items() if imported & shells]
        if not mixed:
            break
        for name in mixed:
            del candidates[name]
    packages = {f"holdfast.{name}" for name in NODES}
    assert sorted(candidates.keys() - pure - packages) == []


def has_behaviour(path: Path) -> bool:
    return any(True for _ in nodes(path, ast.FunctionDef))


@cache
def used_by_unit_tests() -> set[str]:
    """Modules that a unit test or its harness imports, in whichever form."""
    found: set[str] = set()
    for path in files("tests/unit"):
        for node in nodes(path, ast.ImportFrom):
            assert isinstance(node, ast.ImportFrom)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        found |= imports(path)
    return found


def is_tested(path: Path) -> bool:
    own = ROOT / "tests" / "unit" / path.relative_to(ROOT).parts[0] / f"test_{path.stem}.py"
    return own.exists() or module_name(path) in used_by_unit_tests()


def test_pure_modules_are_tested_by_themselves_or_with_what_they_are_part_of() -> None:
    paths = [path for path in pure_modules() if has_behaviour(path) and module_name(path) not in TESTED_WITH]
    assert [module_name(path) for path in paths if not is_tested(path)] == []
    assert [test for test in TESTED_WITH.values() if not (ROOT / "tests" / "unit" / test).exists()] == []
    assert sorted(TESTED_WITH.keys() - {module_name(path) for path in pure_modules()}) == []
