"""What the Grafana dashboards show: a table of panels and their expressions.

Owns titles and expressions, all over metrics of docs/metrics.md or what docker/prometheus records (a test
says so); `tools.dashboards` makes Grafana's JSON of it.
"""

from typing import NamedTuple

_RATE = "[$__rate_interval]"
_TOPIC = 'topic=~"$topic"'
UNCLEAN = 'reason=~"unclean_random|last_known_leader|longest_log_.*|designation"'


class Panel(NamedTuple):
    """One panel; `kind` is one of `tools.dashboards.KINDS`."""

    title: str
    kind: str
    #: (expression, legend)
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    #: stats: red from here on, None for never
    red_from: float | None = None


class Board(NamedTuple):
    """One dashboard: rows of panels."""

    uid: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def _one(title: str, expression: str, red_from: float | None = 1, unit: str = "short") -> Panel:
    return Panel(title, "stat", ((expression, ""),), unit, red_from)


def _lines(title: str, *queries: tuple[str, str], unit: str = "short") -> Panel:
    return Panel(title, "lines", queries, unit)


def _bars(title: str, counter: str, *by: str, where: str = "") -> Panel:
    """What happened, by labels."""
    expression = f"sum by ({', '.join(by)}) (increase({counter}{{{where}}}{_RATE}))"
    return Panel(title, "bars", ((expression, " ".join(f"{{{{{label}}}}}" for label in by)),))


def _quantiles(title: str, metric: str, by: str = "", where: str = "", unit: str = "s") -> Panel:
    """p50 and p99 of a histogram, by a label."""
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return _lines(
        title,
        *(
            (
                f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{where}}}{_RATE})))",
                f"p{round(q * 100)}{legend}",
            )
            for q in (0.5, 0.99)
        ),
        unit=unit,
    )


DURABILITY = Board(
    "holdfast-durability",
    "Holdfast: durability",
    (
        (
            "Can we lose data now?",
            (
                _one("Offline", "sum(kafka_controller_offline_partitions)"),
                _one(
                    "For the operator",
                    "sum(kafka_controller_manual_leader_election_required_partition_count)",
                ),
                _one("Under recovery", "sum(kafka_controller_unclean_recovery_partitions_count)"),
                _one("Under min ISR", "sum(kafka_controller_global_under_min_isr_partition_count)"),
                _one(
                    "Replicas in ELR",
                    "count(kafka_controller_partition_replica_role == 4) or vector(0)",
                    None,
                ),
                _one("Log dirs failed", "sum(kafka_log_directory_offline)"),
                _one(
                    "Topics without headroom",
                    'count(min by (topic) (kafka_controller_partition_failures_tolerated{kind="lossy"}) <= 0)'
                    " or vector(0)",
                ),
                _one(
                    "Acknowledged, durable nowhere",
                    "sum(kafka_controller_partition_power_loss_exposure_records)",
                    None,
                ),
                _one("Active controllers", "sum(kafka_controller_active_controller)", 2),
            ),
        ),
        (
            "Who may lead",
            (
                Panel(
                    "Roles: 6 leads, 5 ISR, 4 ELR, 3 last known ELR, 2 catching up, 1 fenced, 0 dir failed",
                    "history",
                    (
                        (
                            f"kafka_controller_partition_replica_role{{{_TOPIC}}}",
                            "{{topic}}-{{partition}} on {{broker}}",
                        ),
                    ),
                ),
                Panel(
                    "Leaders (-1 none)",
                    "table",
                    ((f"kafka_controller_partition_leader{{{_TOPIC}}}", ""),),
                ),
                Panel(
                    "Electable leaders: ISR and ELR",
                    "table",
                    ((f"kafka_controller_partition_electable_leaders{{{_TOPIC}}}", ""),),
                ),
                _lines(
                    "Failures survived, least of a topic",
                    (
                        f"min by (topic, kind) (kafka_controller_partition_failures_tolerated{{{_TOPIC}}})",
                        "{{topic}} {{kind}}",
                    ),
                ),
            ),
        ),
        (
            "Elections and recoveries",
            (
                _bars("Elections", "kafka_controller_leader_elections_total", "reason"),
                _bars(
                    "Unclean elections", "kafka_controller_leader_elections_total", "reason", where=UNCLEAN
                ),
                _quantiles("Time without a leader", "kafka_controller_partition_leaderless_seconds"),
                _quantiles("Recoveries, by phase", "kafka_controller_unclean_recovery_seconds", "phase"),
                _lines(
                    "Recoveries done and under way",
                    ("sum(kafka_controller_unclean_recovery_finished_total)", "done"),
                    ("sum(kafka_controller_unclean_recovery_partitions_count)", "under way"),
                ),
                _bars("Answers about logs", "kafka_controller_unclean_recovery_replies_total", "result"),
                _bars("Unclean shutdowns", "kafka_controller_unclean_shutdown_registrations_total", "broker"),
            ),
        ),
        (
            "Truncation and exposure",
            (
                _bars(
                    "Records cut off (below_hwm: committed ones)",
                    "kafka_server_truncated_records_total",
                    "topic",
                    "range",
                    where=_TOPIC,
                ),
                _lines(
                    "Not durable on the broker",
                    ("sum by (instance) (kafka_log_unflushed_bytes)", "{{instance}}"),
                    unit="bytes",
                ),
                Panel(
                    "Flushes",
                    "heat",
                    ((f"sum by (le) (increase(kafka_log_flush_seconds_bucket{_RATE}))", "{{le}}"),),
                    "s",
                ),
                _lines(
                    "Acknowledged, durable nowhere",
                    (
                        "sum by (topic) "
                        f"(kafka_controller_partition_power_loss_exposure_records{{{_TOPIC}}})",
                        "{{topic}}",
                    ),
                ),
                _lines(
                    "Invisible until the ISR is back",
                    (f"sum by (topic) (kafka_server_partition_hwm_blocked_records{{{_TOPIC}}})", "{{topic}}"),
                ),
                _lines(
                    "Logs in each log dir",
                    ("kafka_log_directory_logs", "{{instance}} {{dir}}"),
                ),
                _lines(
                    "Logs still to be opened",
                    ("kafka_log_recovery_remaining_logs", "{{instance}} {{dir}}"),
                ),
            ),
        ),
    ),
)

CLUSTER = Board(
    "holdfast-cluster",
    "Holdfast: cluster",
    (
        (
            "State",
            (
                _one("Brokers online", "sum(kafka_controller_active_brokers)", None),
                _one("Brokers fenced", "sum(kafka_controller_fenced_brokers)"),
                _one("Topics", "sum(kafka_controller_global_topics)", None),
                _one("Partitions", "sum(kafka_controller_global_partitions)", None),
                _one("Under replicated", "sum(kafka_server_under_replicated_partitions)"),
                _one("At min ISR", "sum(kafka_server_at_min_isr_partitions)", None),
                _one("Under min ISR", "sum(kafka_server_under_min_isr_partitions)"),
                _one("Offline replicas", "sum(kafka_server_offline_replicas)"),
                _one(
                    "Not led by the preferred replica",
                    "sum(kafka_controller_preferred_replica_imbalance)",
                    None,
                ),
            ),
        ),
        (
            "Traffic",
            (
                *(
                    _lines(
                        title,
                        (f"sum by (topic) (rate(kafka_server_{name}_total{{{_TOPIC}}}{_RATE}))", "{{topic}}"),
                        unit=unit,
                    )
                    for title, name, unit in (
                        ("Records in", "messages_in", "short"),
                        ("Bytes in", "bytes_in", "Bps"),
                        ("Bytes out", "bytes_out", "Bps"),
                        ("Replication in", "replication_bytes_in", "Bps"),
                        ("Replication out", "replication_bytes_out", "Bps"),
                    )
                ),
                _lines(
                    "Produce and fetch",
                    (
                        'sum by (request) (rate(kafka_server_requests_total{request=~"produce|fetch"}'
                        f"{_RATE}))",
                        "{{request}}",
                    ),
                ),
            ),
        ),
        (
            "Machines",
            (
                _lines(
                    "Size of logs",
                    (f"sum by (topic) (kafka_log_size_bytes{{{_TOPIC}}})", "{{topic}}"),
                    unit="bytes",
                ),
                _lines("Memory", ("process_resident_memory_bytes", "{{instance}}"), unit="bytes"),
                _lines("CPU", (f"rate(process_cpu_seconds_total{_RATE})", "{{instance}}")),
                _lines("Open files", ("process_open_fds", "{{instance}}")),
                _lines("Connections", ("sum by (instance) (kafka_server_connections)", "{{instance}}")),
                _lines("Leaderships", ("kafka_server_leader_partitions", "{{instance}}")),
            ),
        ),
    ),
)

QUORUM = Board(
    "holdfast-quorum",
    "Holdfast: quorum",
    (
        (
            "State",
            (
                Panel("Role", "table", (("kafka_raft_current_state == 1", ""),)),
                Panel("Leader as known", "table", (("kafka_raft_current_leader", ""),)),
                _lines("Epoch", ("kafka_raft_current_epoch", "{{instance}}")),
                _lines("High watermark", ("kafka_raft_high_watermark", "{{instance}}")),
                _lines(
                    "Behind the leader",
                    (
                        "scalar(max(kafka_raft_log_end_offset)) - kafka_raft_log_end_offset",
                        "{{instance}}",
                    ),
                ),
            ),
        ),
        (
            "Work",
            (
                _lines("Records", (f"sum(rate(kafka_raft_append_records_total{_RATE}))", "appended")),
                _quantiles("Commit", "kafka_raft_commit_latency_seconds"),
                _quantiles("Time without a leader of the quorum", "kafka_raft_election_latency_seconds"),
                _quantiles("Events waited", "kafka_controller_event_queue_seconds"),
                _quantiles("Events took", "kafka_controller_event_processing_seconds"),
                _quantiles("From decision to commit", "kafka_controller_leader_election_seconds"),
                _lines(
                    "Events",
                    (f"sum by (instance) (rate(kafka_controller_events_total{_RATE}))", "{{instance}}"),
                ),
            ),
        ),
    ),
)

BROKERS = Board(
    "holdfast-brokers",
    "Holdfast: brokers inside",
    (
        (
            "Requests",
            (
                _quantiles("Produce, by phase", "kafka_server_request_seconds", "phase", 'request="produce"'),
                _quantiles("Fetch, by phase", "kafka_server_request_seconds", "phase", 'request="fetch"'),
                _quantiles("All", "kafka_server_request_seconds", "request", 'phase="total"'),
                _lines(
                    "Refused",
                    (
                        "sum by (request, error) "
                        f'(rate(kafka_server_requests_total{{error!="NONE"}}{_RATE}))',
                        "{{request}} {{error}}",
                    ),
                ),
                _lines("Writes that wait", ("kafka_server_delayed_produce_requests", "{{instance}}")),
                _lines("Fetches that wait", ("kafka_server_delayed_fetch_requests", "{{instance}}")),
            ),
        ),
        (
            "Consumer groups",
            (
                _lines("Groups, by state", ("sum by (state) (kafka_coordinator_groups)", "{{state}}")),
                _lines(
                    "Lag in records, the groups that are furthest behind",
                    ("topk(10, sum by (group) (kafka_coordinator_group_lag_records))", "{{group}}"),
                ),
                _lines(
                    "Lag in records, worst partitions",
                    (
                        "topk(10, kafka_coordinator_group_lag_records)",
                        "{{group}} {{topic}}-{{partition}}",
                    ),
                ),
            ),
        ),
        (
            "Replication",
            (
                _lines(
                    "ISR",
                    (f"sum(rate(kafka_server_isr_shrinks_total{_RATE}))", "shrinks"),
                    (f"sum(rate(kafka_server_isr_expands_total{_RATE}))", "expands"),
                    (f"sum(rate(kafka_server_failed_isr_updates_total{_RATE}))", "refused"),
                ),
                _lines(
                    "Behind the metadata",
                    (
                        "scalar(max(kafka_controller_metadata_offset)) - kafka_server_metadata_offset",
                        "{{instance}}",
                    ),
                ),
                Panel("State", "table", (("kafka_server_broker_state == 1", ""),)),
            ),
        ),
        (
            "Process",
            (
                _quantiles("Event loop is late by", "kafka_runtime_loop_lag_seconds", "instance"),
                _quantiles("Flushes", "kafka_log_flush_seconds", "instance"),
                _lines(
                    "Flushes a second",
                    (
                        f"sum by (instance, reason) (rate(kafka_log_flushes_total{_RATE}))",
                        "{{instance}} {{reason}}",
                    ),
                ),
            ),
        ),
    ),
)

BOARDS = (DURABILITY, CLUSTER, QUORUM, BROKERS)
