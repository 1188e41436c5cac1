"""What a controller accepts as configuration."""

import pytest

from holdfast.controller.core.config import ControllerConfig
from holdfast.metadata.configs import ConfigError

KEYS = {
    "node.id": "2",
    "process.roles": "controller",
    "listeners": "INTERNAL://:1,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "log.dirs": "/data",
    "holdfast.cluster.id": "x",
}


def test_keys_become_fields() -> None:
    config, warnings = ControllerConfig.from_properties(
        KEYS | {"holdfast.http.listener": "0.0.0.0:9404", "min.insync.replicas": "2"},
        {"HOLDFAST_BROKER_SESSION_TIMEOUT_MS": "6000"},
    )
    assert warnings == []
    assert (config.node_id, config.listener.port, config.metadata_log_dir) == (2, 9093, "/data")
    assert config.voters[3] == ("c", 9093)
    assert config.http_listener == ("0.0.0.0", 9404)
    assert (config.session_timeout_ms, config.min_insync_replicas) == (6000, 2)
    assert config.waiting_requests_max == 4096
    assert config.static["min.insync.replicas"] == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"node.id": "4"}, "node.id=4"),
        ({"process.roles": "broker"}, "process.roles=broker"),
        ({"process.roles": "broker,controller"}, "process.roles=broker,controller"),
        ({"controller.listener.names": "OTHER"}, "controller.listener.names=OTHER"),
        ({"log.dirs": ""}, "metadata.log.dir"),
        ({"controller.quorum.auto.join.enable": "true"}, "must name the host and the port"),
    ],
)
def test_what_single_keys_cannot_know_is_refused_with_the_keys_named(
    changes: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ControllerConfig.from_properties(KEYS | changes, {})
    assert text in str(caught.value)


def test_the_metadata_log_may_have_a_folder_of_its_own() -> None:
    config, _ = ControllerConfig.from_properties(KEYS | {"metadata.log.dir": "/meta"}, {})
    assert config.metadata_log_dir == "/meta"


@pytest.mark.parametrize(
    ("key", "joins_as"),
    [("holdfast.quorum.joins", None), ("controller.quorum.auto.join.enable", "c4:9093")],
)
def test_a_controller_that_is_not_configured_as_a_voter_may_wait_or_make_itself_one(
    key: str, joins_as: str | None
) -> None:
    changes = {"node.id": "4", "listeners": "CONTROLLER://c4:9093", key: "true"}
    config, warnings = ControllerConfig.from_properties(KEYS | changes, {})
    assert warnings == []
    assert (config.joins, config.joins_as) == (True, joins_as)
