"""`from holdfast import ...`: every public name is there, for Python and for type checkers, and costs nothing
before it is asked for."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__)


def names_for_type_checkers() -> dict[str, str]:
    """{name: module} of the imports that only a type checker reads."""
    (block,) = (
        node
        for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    )
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_every_name_is_there_and_is_what_type_checkers_take_it_for() -> None:
    typed = names_for_type_checkers()
    assert sorted(typed) == holdfast.__all__
    for name, module in typed.items():
        assert getattr(holdfast, name).__module__ == module, name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(holdfast, "Produser")
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert holdfast.__version__


def test_every_public_class_and_method_says_what_it_does() -> None:
    silent = [
        f"{name}.{member}"
        for name in holdfast.__all__
        for member, found in [("", getattr(holdfast, name)), *vars(getattr(holdfast, name)).items()]
        if not member.startswith("_") and (inspect.isfunction(found) or inspect.isclass(found))
        if not found.__doc__
    ]
    assert not silent


def loaded_by(statement: str) -> set[str]:
    """Modules that are there after this statement, in a process of its own."""
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_holdfast_loads_nothing_else() -> None:
    assert {name for name in loaded_by("import holdfast") if name.startswith(("holdfast", "asyncio"))} == {
        "holdfast"
    }


def test_a_client_loads_no_node_and_no_tool() -> None:
    loaded = loaded_by("from holdfast import Admin, Consumer, Ledger, Producer")
    packages = {".".join(module.split(".")[:2]) for module in loaded if module.startswith("holdfast.")}
    assert packages == {f"holdfast.{name}" for name in ("client", "protocol", "rpc", "runtime")}
    assert not loaded & {"aiohttp", "prometheus_client", "click", "pyspark", "uvloop", "pytest"}


def test_the_pytest_plugin_loads_nothing_of_holdfast() -> None:
    found = loaded_by("import holdfast.localcluster.pytest_plugin")
    loaded = {module for module in found if module.startswith("holdfast")}
    assert loaded == {"holdfast", "holdfast.localcluster", "holdfast.localcluster.pytest_plugin"}
