"""Names of faults, in the order of the table in `sim.faults.table`: a tape tells which one by its place."""

#: Played only by a plan that gives them a weight.
MORE_FAULTS = (
    "restart_broker",
    "abort_stop",
    "kill_site",
    "lose_voter",
    "fence_leader",
    "mute_controllers",
    "jump_clock",
    "drift_clock",
    "append_error",
    "flip_bit",
    "keep_copy",
    "restore_copy",
    "fail_dir",
    "crash_in_stop",
    "crash_in_start",
    "stop_unseen",
    "cut_pair",
    "cut_followers",
    "starve_follower",
    "kill_elected",
    "stall",
    "late_proposal",
    "min_isr_with_elr",
    "act_while_leaderless",
    "crumble",
    "unregister_broker",
    "move_partition",
    "move_back",
    "cancel_move",
    "change_min_isr",
    "elect_preferred",
    "add_partition",
    "make_topic",
    "drop_topic",
    "change_flush",
    "change_strategy",
    "elect_unclean",
    "switch_elr",
)
#: Likewise; several steps, aimed at one state. They are played in one story of four
#: (`sim.campaign.run_spec`).
AIMED_FAULTS = (
    "tear_move",
    "flap_isr",
    "forget_producers",
    "late_metadata",
    "late_copy",
    "stale_answer",
    "late_voters",
    "late_session",
    "lull",
    "refuse_join",
    "figure_eight",
    "long_figure_eight",
)
#: Likewise; played only in the bands that are about them (`sim.campaign.run_spec`).
BAND_FAULTS = ("strand_move",)
#: Likewise; played only in some stories of their own, never at the reference load (`sim.campaign.run_spec`).
STORY_FAULTS = ("late_fetches", "late_logs", "delete_records", "replace_voter")
#: Without a weight in a plan that does not name them.
ONLY_IF_NAMED = frozenset((*MORE_FAULTS, *AIMED_FAULTS, *BAND_FAULTS, *STORY_FAULTS))
#: All faults.
FAULT_NAMES = (
    "kill_broker",
    "kill_leader",
    "kill_busy_leader",
    "kill_controller",
    "kill_active",
    "kill_all_brokers",
    "power_broker",
    "power_leader",
    "power_controller",
    "power_all",
    "stop_broker",
    "stop_controller",
    "pause_broker",
    "pause_leader",
    "pause_active",
    "isolate_broker",
    "isolate_leader",
    "isolate_active",
    "split",
    "one_way",
    "bridge",
    "cut_controllers",
    "cut_clients",
    "reset",
    "clog",
    "slow_disk",
    "hang_disk",
    "io_error",
    "disk_full",
    "crash_at_point",
    *MORE_FAULTS,
    *AIMED_FAULTS,
    *BAND_FAULTS,
    *STORY_FAULTS,
)
#: What may befall a node that is named.
NODE_FAULTS = ("kill", "power", "stop", "pause", "isolate")
