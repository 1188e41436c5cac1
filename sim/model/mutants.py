"""All wrong rules, by name: importing the modules that define them fills the table."""

from holdfast.sim.model import wrong_brokers, wrong_controllers
from holdfast.sim.model.mutant import ModelMutant

__all__ = ["MUTANTS", "ModelMutant", "wrong_brokers", "wrong_controllers"]


def _all() -> dict[str, type[ModelMutant]]:
    kinds = ModelMutant.__subclasses__()
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {_name(kind): kind for kind in kinds}


def _name(kind: type[ModelMutant]) -> str:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)
    return words[1:]


#: by the name of the command line
MUTANTS = _all()
