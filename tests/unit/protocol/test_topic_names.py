"""What topics may be called, for all clients alike."""

import pytest

from holdfast.protocol.topic_names import topic_name_problem


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "ü", "x" * 250, "caf\udce9", "__cluster_metadata", b"t", None, 7]
)
def test_bad_topic_names(name: object) -> None:
    assert topic_name_problem(name) is not None


def test_good_topic_names() -> None:
    assert topic_name_problem("a.B-9_" + "x" * 243) is None
