"""docs/kafka.md says what the listener serves."""

from holdfast.tools.kafka_docs import PAGE, rewritten


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rewritten(text), "run `python -m holdfast.tools.kafka_docs`"
