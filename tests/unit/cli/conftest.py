"""Tools against a cluster in memory, without processes and sockets."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from tests.unit.cli.fake_admin import FakeAdmin


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """The cluster that every command of the test asks."""
    fake = FakeAdmin()
    monkeypatch.setattr("holdfast.client.admin.Admin", lambda servers, runtime: fake)
    return fake


@pytest.fixture
def holdfast(admin: FakeAdmin) -> Callable[..., Result]:
    """Run one command; `--bootstrap-server` is given."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--bootstrap-server", "127.0.0.1:1"])

    return run
