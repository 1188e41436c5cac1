"""Which directions are held or slow, from orders that come and go."""

from holdfast.localcluster.links import Rules


def test_a_direction_is_held_until_every_order_that_holds_it_is_gone() -> None:
    rules = Rules()
    rules.change("one", {"hold": [["a", "b"], ["b", "a"]]})
    rules.change("two", {"hold": [["a", "b"]]})
    rules.change("one", None)
    assert rules.is_held(("a", "b"))
    assert not rules.is_held(("b", "a"))
    rules.change("two", None)
    rules.change("two", None)
    assert not rules.is_held(("a", "b"))


def test_a_direction_is_slow_while_an_order_says_so() -> None:
    rules = Rules()
    rules.change("slow", {"delay": [["a", "b", 250]]})
    assert rules.delay_s(("a", "b")) == 0.25
    assert rules.delay_s(("b", "a")) == 0
    rules.change("slow", None)
    assert rules.delay_s(("a", "b")) == 0
