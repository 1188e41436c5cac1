"""Optional dependencies: a command that needs them says so before it does anything else."""

import sys
from importlib.util import find_spec
from typing import Literal

#: {extra of pyproject.toml: modules that it brings}
EXTRAS = {"spark": ("pyspark", "py4j", "pyarrow", "numpy"), "bench": ("psutil",), "report": ("plotly",)}


def require(extra: Literal["spark", "bench", "report"]) -> None:
    """End the process with exit code 1 and a sentence when a module of `extra` is not installed."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        sys.exit(
            f"error: {', '.join(missing)} is missing: install the extra `{extra}`, "
            f"with pip install '.[{extra}]' in a checkout or pip install 'holdfast-VERSION.whl[{extra}]'"
        )
