"""`holdfast <command>`: finds the command's module and loads only that, so that `--help` stays fast."""

import errno
import importlib
import os
import signal
import sys
import threading
from typing import Any

import click

#: command -> (module, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "broker": ("holdfast.cli.node", "Run a broker in the foreground."),
    "chaos": ("holdfast.drills.chaos", "Break a running cluster on purpose, heal it, or soak one."),
    "check": ("holdfast.cli.check", "Answer a question with an exit code: can a broker stop?"),
    "cluster": (
        "holdfast.cli.cluster",
        "Run a whole cluster as local processes; kill, stop or pause single nodes.",
    ),
    "configs": (
        "holdfast.cli.configs",
        "Show and change configuration of topics and of the cluster, and quotas.",
    ),
    "console-consumer": ("holdfast.cli.console_consumer", "Print the records of a topic."),
    "console-producer": ("holdfast.cli.console_producer", "Send lines of standard input as records."),
    "consumer-groups": (
        "holdfast.cli.consumer_groups",
        "List and describe consumer groups with their lag, reset their offsets, delete them.",
    ),
    "consumer-perf-test": ("holdfast.cli.perf.consumer", "Measure how fast records are read."),
    "controller": ("holdfast.cli.node", "Run a controller in the foreground."),
    "delete-records": ("holdfast.cli.delete_records", "Delete the records of partitions below an offset."),
    "demo": (
        "holdfast.drills.demo.command",
        "Produce while processes are killed, then prove with Spark what survived.",
    ),
    "drill": ("holdfast.drills.command", "Play a named failure on a real cluster; Spark says what survived."),
    "dump-log": ("holdfast.cli.inspect.dump_log", "Show what is in segment, index and checkpoint files."),
    "e2e-latency": (
        "holdfast.cli.perf.e2e",
        "Measure how long a record takes from the producer to a consumer.",
    ),
    "features": ("holdfast.cli.features", "Show, raise and lower levels of features."),
    "explain": (
        "holdfast.cli.inspect.explain",
        "Tell why a partition is led as it is, from the metadata log.",
    ),
    "get-offsets": (
        "holdfast.cli.get_offsets",
        "Show the first, last or a timestamp's offset of partitions.",
    ),
    "health": ("holdfast.cli.health", "Say what is not well in the cluster, and exit 1 when anything is."),
    "leader-election": ("holdfast.cli.leader_election", "Elect leaders of partitions."),
    "log-dirs": ("holdfast.cli.log_dirs", "Show what is in the log dirs of brokers, and their free space."),
    "metadata-quorum": (
        "holdfast.cli.metadata_quorum",
        "Show the metadata quorum; change its voters; take in the new disk of a controller.",
    ),
    "node-health": ("holdfast.cli.node_health", "Ask a node's HTTP endpoint whether it is alive or ready."),
    "producer-perf-test": ("holdfast.cli.perf.producer", "Measure how fast records are acknowledged."),
    "reassign-partitions": ("holdfast.cli.reassign_partitions", "Move partitions to other brokers."),
    "replica-verification": (
        "holdfast.cli.replica_verification",
        "Compare the replicas of partitions with each other.",
    ),
    "scenario": ("holdfast.cli.scenario", "Run scenario files against the real controller core."),
    "sim": (
        "holdfast.cli.sim.command",
        "Run whole clusters out of a seed: simulated time, network and disks.",
    ),
    "topics": ("holdfast.cli.topics", "Create, delete, extend, list and describe topics."),
    "unclean-recovery": (
        "holdfast.cli.recovery.command",
        "Compare the logs of partitions without a leader, elect the best.",
    ),
    "validate": (
        "holdfast.cli.validate",
        "Compare ledgers with what the cluster serves (Spark): was anything lost?",
    ),
    "watch": ("holdfast.cli.watch.command", "Show the cluster live in the terminal: the page of a node."),
    "verifiable-consumer": (
        "holdfast.cli.verifiable_consumer",
        "Read a topic, report what each poll gave, keep it for the verdict.",
    ),
    "verifiable-producer": (
        "holdfast.cli.verifiable_producer",
        "Send numbered records, report each answer, keep a ledger.",
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        # a module with several commands names them as they are typed, one with a single one says `command`
        found = getattr(module, cmd_name.replace("-", "_"), None) or module.command
        assert isinstance(found, click.Command)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a signal unwinds it, so it leaves nothing running, and sets the exit code."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click's; a full disk behind the output is told in a sentence, also when it shows at the end."""
        _open_standard_files()
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # the rest would fail again at the exit
            click.echo(f"Error: the output could not be written: {error.strerror}", err=True)
            sys.exit(1)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast")
def main() -> None:
    """Holdfast: a small replicated log cluster that you can pull the plug on."""


def _open_standard_files() -> None:
    """Put nothing in the place of one that the caller closed (`<&-`): a socket would be taken for it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)


if __name__ == "__main__":
    main(prog_name="holdfast")
