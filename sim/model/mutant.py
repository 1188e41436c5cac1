"""A mutant of the model: the rules with one method replaced, which the properties must notice (§5.3)."""

from holdfast.sim.model.rules import Rules


class ModelMutant(Rules):
    """One rule broken. The docstring says which."""

    #: row of verification.md §5.3, 0 for one of our own
    row = 0
    #: the band in which it matters
    band = "mixed"
    #: walks hardly ever get there; a story of the tests does
    is_rare = False
