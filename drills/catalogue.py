"""All drills, in the order in which `holdfast drill --list` shows them."""

from holdfast.drills.cases import (
    acks1_invisible,
    clean_elr_recovery,
    controller_failover_in_recovery,
    flush_every_write,
    kip_timeline,
    last_replica_standing,
    min_isr_change,
    one_lossy_broker,
    over_budget,
    power_outage,
    recovery_tool,
    rolling_power_cut,
    stale_reply,
    whole_cluster_power_cut,
)
from holdfast.drills.drill import Drill

DRILLS: dict[str, Drill] = {
    story.DRILL.name: story.DRILL
    for story in (
        last_replica_standing,
        power_outage,
        clean_elr_recovery,
        kip_timeline,
        whole_cluster_power_cut,
        rolling_power_cut,
        min_isr_change,
        stale_reply,
        controller_failover_in_recovery,
        acks1_invisible,
        flush_every_write,
        recovery_tool,
        one_lossy_broker,
        over_budget,
    )
}
