"""The page about KIP-966 and the spec tests say the same."""

from pathlib import Path

from tests.spec.catalogue import CHAPTERS, FOLDER, PAGE, kept_rules, page
from tests.spec.untested import UNTESTED

ROOT = Path(__file__).parents[2]


def test_every_module_of_spec_tests_is_a_chapter() -> None:
    modules = {path.stem for path in FOLDER.glob("test_*.py")} - {"test_catalogue"}
    assert modules == CHAPTERS.keys()


def test_every_spec_test_names_a_rule_and_where_it_is_kept() -> None:
    for rule in kept_rules():
        for module in rule.modules:
            assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), f"{rule.test}: {module}"


def test_rules_are_not_told_twice() -> None:
    rules = [rule.rule for rule in kept_rules()] + [row.rule for row in UNTESTED]
    assert len(rules) == len(set(rules))


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.spec.catalogue"
