"""Entry point of a controller: wires configuration, metadata log, quorum, rpc and telemetry."""

import logging
import sys

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.server import ControllerServer
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.raft.metadata_log import open_voters_log
from holdfast.runtime.api import DiskError, NetworkError, Runtime
from holdfast.runtime.real import machine
from holdfast.storage.core.files import METADATA_FOLDER
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused

_log = logging.getLogger("holdfast.controller")


def raft_config(config: ControllerConfig, folder: str) -> RaftConfig:
    """The quorum's part of the configuration."""
    return RaftConfig(
        node_id=config.node_id,
        cluster_id=config.cluster_id,
        voters=config.voters,
        folder=folder,
        is_voter=True,
        election_timeout_ms=config.election_timeout_ms,
        fetch_timeout_ms=config.fetch_timeout_ms,
        election_backoff_max_ms=config.election_backoff_max_ms,
        request_timeout_ms=config.quorum_request_timeout_ms,
        retry_backoff_ms=config.quorum_retry_backoff_ms,
        snapshot_bytes=config.snapshot_bytes,
        snapshot_interval_ms=config.snapshot_interval_ms,
        joins=config.joins,
        joins_as=config.joins_as,
    )


async def run(config: ControllerConfig, runtime: Runtime, signals: machine.StopSignals) -> int:
    """Run a controller until a signal (0) or a failure (1)."""
    try:
        raft_config(config, config.metadata_log_dir).validate()
    except ValueError as error:
        _log.error("%s", error)
        return 1
    try:
        log_dir = await LogDir.open(runtime, config.metadata_log_dir, config.cluster_id, config.node_id)
        folder = log_dir.file(METADATA_FOLDER)
        log = await open_voters_log(runtime, folder)
        server = ControllerServer(runtime, config, raft_config(config, folder), log)
        await server.start()
    except (DiskError, NetworkError, LogDirRefused, BadQuorumState) as error:
        _log.error("controller %d cannot start: %s", config.node_id, error)
        return 1
    admin = None
    if config.http_listener is not None:
        from holdfast.runtime.http.telemetry import AdminServer

        admin = AdminServer(*config.http_listener, server, host_names=config.host_names)
        try:
            await admin.start()
        except NetworkError as error:
            _log.error("controller %d cannot start: %s", config.node_id, error)
            return 1
    failure = await machine.until_stopped(runtime, signals)
    if failure is not None:
        _log.error("controller %d failed: %s", config.node_id, failure)
        return 1
    if admin is not None:
        await admin.close()
    await server.stop()
    await runtime.tasks.cancel_all()
    failure = server.failure
    try:
        await log.close(flush=True)
    except DiskError as error:  # committed records are durable already
        failure = failure or error
    if failure is not None:
        _log.error("controller %d stopped, but %s", config.node_id, failure)
        return 1
    _log.info("controller %d stopped", config.node_id)
    return 0


if __name__ == "__main__":
    sys.exit("start a controller with: holdfast controller --config FILE")
