"""A mutant of the model: the rules with one method replaced, which the properties must notice."""

from holdfast.sim.model.rules import Rules


class ModelMutant(Rules):
    """One rule broken. The docstring says which."""

    #: number in the list of mutants that was planned first, 0 for a later one
    row = 0
    #: the band in which it matters
    band = "mixed"
    #: walks hardly ever get there; a story of the tests does
    is_rare = False
