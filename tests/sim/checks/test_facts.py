"""Facts and the properties that hear of them: what is told is heard, and what a property hears of is told."""

import inspect

import pytest

from holdfast.sim.checks.all import PROPERTIES
from holdfast.sim.checks.observe.coverage_marks import Marks
from holdfast.sim.checks.observe.facts import FACTS, hearers
from holdfast.sim.checks.observe.views import Property


@pytest.mark.parametrize("one", [*PROPERTIES, Marks], ids=lambda one: one.__name__)
def test_a_property_takes_the_fields_of_the_facts_that_it_hears_of(one: type[Property]) -> None:
    """A method that no fact is named after would never be called."""
    heard = {
        name: list(inspect.signature(method).parameters)[2:]
        for name, method in inspect.getmembers(one, inspect.isfunction)
        if not name.startswith("_") and "seen" in inspect.signature(method).parameters
    }
    assert heard
    assert heard == {name: list(FACTS[name]._fields) for name in heard if name in FACTS}


def test_each_fact_is_heard_of() -> None:
    unheard = [fact.__name__ for fact, methods in hearers((*PROPERTIES, Marks)).items() if not methods]
    assert unheard == []
