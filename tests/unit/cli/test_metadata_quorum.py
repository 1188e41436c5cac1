"""`holdfast metadata-quorum`."""

from collections.abc import Callable

import pytest
from click.testing import Result

from tests.unit.cli.fake_admin import FakeAdmin

ID = bytes(range(16))


@pytest.mark.parametrize(("words", "named"), [([], None), (["--directory-id", ID.hex()], ID)])
def test_a_voter_is_taken_in_with_the_directory_that_asks_or_that_is_named(
    holdfast: Callable[..., Result], admin: FakeAdmin, words: list[str], named: bytes | None
) -> None:
    result = holdfast("metadata-quorum", "readmit", "--voter", "2", *words)
    assert result.stdout == f"Voter 2 counts with directory {ID.hex()} from now on.\n"
    assert admin.asked == [("add_raft_voter", 2, named)]


@pytest.mark.parametrize("text", ["0", "xyz", ID.hex() + "00"])
def test_what_is_no_directory_id_is_a_usage_error(holdfast: Callable[..., Result], text: str) -> None:
    result = holdfast("metadata-quorum", "readmit", "--voter", "2", "--directory-id", text)
    assert result.exit_code == 2
    assert "32 hexadecimal digits" in result.stderr
