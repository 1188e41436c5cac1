"""A second controller behind the commands of scenario files: it says what they print.

Its rules are in `second_cluster`; here is what each command means to them, and the errors of R17, R40, R41,
R103, R104 and R108. Nothing of `controller` is imported.
"""

from holdfast.scenario.grammar import Command
from tests.unit.controller.second_cluster import (
    LEGACY_PASS_MS,
    STRATEGIES,
    Machine,
    Name,
    Part,
    SecondCluster,
)

#: heartbeats of all brokers until one that shuts down has seen that the others know of it
ROUNDS = 2


class SecondOpinion(SecondCluster):
    """`execute` takes a line as `Scenario.execute` does, and returns what it should print."""

    def execute(self, line: str) -> list[str]:
        command = Command(line, "second opinion")
        self._errors, self._told = [], []
        before = {name: part.line() for name, part in self.parts.items()}
        getattr(self, f"do_{command.name}")(command)
        self.compare()
        if command.name in ("show", "cluster"):
            return self._errors or ["ok"]
        put = command.words[0] if command.name == "partition" else None
        lines = [
            f"{topic}-{index} {self.parts[topic, index].line()}"
            for topic, index in self.every()
            if before.get((topic, index)) != self.parts[topic, index].line() or f"{topic}-{index}" == put
        ]
        return lines + self._errors + self._recovery_lines(put) or ["ok"]

    def _recovery_lines(self, put: str | None) -> list[str]:
        """Ends on the way, and what is true at the end."""
        last = {name: at for name, at, _ in self._told}
        return [
            f"{name[0]}-{name[1]} recovery: {text}"
            for name, at, text in sorted(self._told)
            if (at == last[name] or text.startswith(("elected", "cancelled")))
            and put in (None, f"{name[0]}-{name[1]}")
        ]

    def error(self, code: str, name: str = "") -> None:
        self._errors.append(f"{name} error={code}".strip())

    def find(self, text: str) -> tuple[Name, Part | None]:
        topic, _, index = text.rpartition("-")
        return (topic, int(index)), self.parts.get((topic, int(index)))

    def do_cluster(self, command: Command) -> None:
        self.elr = command.text("elr", "on") == "on"
        self.manager = command.text("manager", "on") == "on"
        self.timeout_ms = command.integer("recovery_timeout_ms", 300_000)
        if "strategy" in command.arguments:
            self.cluster["unclean.recovery.strategy"] = command.text("strategy")
        if "unclean" in command.arguments:
            self.cluster["unclean.leader.election.enable"] = command.text("unclean")

    def do_broker(self, command: Command) -> None:
        for broker in command.numbers():
            self._epochs += 1
            self.brokers[broker] = Machine(self._epochs)
            self.heartbeat(broker)
            self.compare()

    def do_partition(self, command: Command) -> None:
        name, _ = self.find(command.word())
        replicas = list(command.ids("replicas"))
        leader = command.text("leader", str(replicas[0]))
        known = command.text("last_known_leader", "none")
        least = command.integer("min_isr")
        self.topics.setdefault(name[0], {})["min.insync.replicas"] = str(least)
        self.parts[name] = Part(
            replicas,
            set(command.ids("isr", tuple(replicas))),
            None if leader == "none" else int(leader),
            min(least, len(replicas)),
            command.integer("leader_epoch", 0),
            command.integer("partition_epoch", 0),
            set(command.ids("elr", ())),
            set(command.ids("last_known_elr", ())),
            None if known == "none" else int(known),
            "recovering" in command.words,
        )

    def do_fence(self, command: Command) -> None:
        for broker in command.numbers():
            if broker in self.brokers and not self.brokers[broker].fenced:
                self.heartbeat(broker, stop=self.brokers[broker].stopping)
            self.fence(broker)
            self.compare()

    def do_expire(self, command: Command) -> None:
        silent = command.numbers()
        for broker in silent:
            if broker in self.brokers and not self.brokers[broker].fenced:
                self.heartbeat(broker, stop=self.brokers[broker].stopping)
        self.all_heartbeat(*silent)
        for broker in silent:
            self.fence(broker)

    def do_unfence(self, command: Command) -> None:
        for broker in command.numbers():
            if broker not in self.brokers:
                self.error("BROKER_ID_NOT_REGISTERED")
                continue
            self.heartbeat(broker)
            self.compare()

    def do_stop(self, command: Command) -> None:
        broker = int(command.word())
        if broker not in self.brokers:
            return self.error("BROKER_ID_NOT_REGISTERED")
        self.heartbeat(broker, stop=True)

    def do_register(self, command: Command) -> None:
        broker = int(command.word())
        old = self.brokers.get(broker)
        # R32: an unknown broker proves nothing
        clean = old is not None and command.word(1) == "clean"
        if old is not None and not old.fenced:
            if not clean:
                return self.error("DUPLICATE_BROKER_REGISTRATION")
            self.leave(broker)
        if not clean and self.elr:
            self.leave(broker, lossy=True)
        self._epochs += 1
        self.brokers[broker] = Machine(self._epochs)

    def do_unregister(self, command: Command) -> None:
        broker = int(command.word())
        if broker not in self.brokers:
            return self.error("BROKER_ID_NOT_REGISTERED")
        self.leave(broker, gone=True)
        del self.brokers[broker]

    def do_alter(self, command: Command) -> None:
        """R40-R42."""
        text = command.word()
        name, part = self.find(text)
        leader = None if part is None else part.leader
        sender = command.integer("from", min(self.brokers, default=0) if leader is None else leader)
        if sender not in self.brokers or command.text("broker_epoch", "") == "stale":
            return self.error("STALE_BROKER_EPOCH")
        if part is None:
            known = any(topic == name[0] for topic, _ in self.parts)
            return self.error("UNKNOWN_TOPIC_OR_PARTITION" if known else "UNKNOWN_TOPIC_ID", text)
        isr, recovering = list(command.ids("isr")), "recovering" in command.words
        leader_epoch = command.integer("leader_epoch", part.leader_epoch)
        epoch = command.integer("partition_epoch", part.epoch)
        stale = command.ids("stale", ())
        bad = len(set(isr)) < len(isr) or not set(isr) <= set(part.replicas) or part.leader not in isr
        bad = bad or (recovering and (len(isr) > 1 or not part.recovering))
        if leader_epoch > part.leader_epoch or epoch > part.epoch:
            self.error("NOT_CONTROLLER", text)
        elif leader_epoch < part.leader_epoch:
            self.error("FENCED_LEADER_EPOCH", text)
        elif sender != part.leader:
            self.error("INVALID_REQUEST", text)
        elif epoch < part.epoch:
            self.error("INVALID_UPDATE_VERSION", text)
        elif bad:
            self.error("INVALID_REQUEST", text)
        elif any(not self.active(r) or r in stale for r in isr):
            self.error("INELIGIBLE_REPLICA", text)
        else:
            self.change(name, isr=set(isr), recovered=not recovering)
            if part.leader != sender:
                self.error("NEW_LEADER_ELECTED", text)

    def do_elect(self, command: Command) -> None:
        """R17-R19."""
        kind, text = command.word(), command.word(1)
        name, part = self.find(text)
        if part is None:
            return self.error("UNKNOWN_TOPIC_OR_PARTITION", text)
        if kind == "preferred":
            first = part.replicas[0]
            if part.leader == first:
                return self.error("ELECTION_NOT_NEEDED", text)
            if not self.active(first) or first not in (part.isr or part.elr):
                return self.error("PREFERRED_LEADER_NOT_AVAILABLE", text)
            return self.change(name, mode="preferred")
        if part.leader is not None:
            return self.error("ELECTION_NOT_NEEDED", text)
        if kind == "unclean":
            if not any(map(self.active, part.replicas)):
                return self.error("ELIGIBLE_LEADERS_NOT_AVAILABLE", text)
            return self.change(name, mode="unclean")
        if kind == "designated":
            leader = command.integer("leader") if "leader" in command.arguments else None
            if leader is None or leader not in part.replicas:
                return self.error("INVALID_REQUEST", text)
            if not self.active(leader):
                return self.error("ELIGIBLE_LEADERS_NOT_AVAILABLE", text)
            return self.change(name, chosen=leader)
        if not self.compares_logs:
            return self.error("INVALID_REQUEST", text)
        wanted = "Aggressive" if kind == "longest_log_aggressive" else "Balanced"
        if wanted == "Balanced" and (part.isr or part.elr):
            return self.error("ELIGIBLE_LEADERS_NOT_AVAILABLE", text)
        self.forced[name] = (wanted, self.configured(name[0]))
        return None

    def do_config(self, command: Command) -> None:
        """R109: what follows stands in the same batch."""
        topic = command.word(1) if command.word() == "topic" else None
        if topic is not None and not any(name[0] == topic for name in self.parts):
            return self.error("UNKNOWN_TOPIC_OR_PARTITION")
        key, value = next(iter(command.arguments.items()))
        good = {
            "min.insync.replicas": value == "" or (value.isdigit() and int(value) >= 1),
            "unclean.recovery.strategy": value == "" or value.lower() in STRATEGIES,
            "unclean.leader.election.enable": value in ("", "true", "false"),
            "unclean.recovery.manager.enabled": value in ("", "true", "false") and topic is None,
        }
        if not good.get(key, False):
            return self.error("INVALID_CONFIG")
        if topic is None and key == "min.insync.replicas" and value == "" and self.elr:
            return self.error("INVALID_CONFIG")
        did_compare = self.compares_logs
        values = self.cluster if topic is None else self.topics.setdefault(topic, {})
        if values.get(key, "") == value:
            return None
        values[key] = value
        if not value:
            del values[key]
        if did_compare and not self.compares_logs:
            for name in self.every(leaderless=True):
                self.change(name, mode="online")
        if key == "min.insync.replicas":
            for name in self.every():
                if topic in (None, name[0]):
                    self.change(name, mode="online")
        return None

    def do_reassign(self, command: Command) -> None:
        """R100-R105."""
        text = command.word()
        name, part = self.find(text)
        if part is None:
            return self.error("UNKNOWN_TOPIC_OR_PARTITION", text)
        original = part.replicas if part.original is None else part.original
        if "cancel" in command.words:
            if part.original is None:
                return self.error("NO_REASSIGNMENT_IN_PROGRESS", text)
            if len(part.isr & set(original)) < part.min_isr:
                return self.error("INVALID_REPLICA_ASSIGNMENT", text)
            self.change(name, isr=part.isr & set(original), lists=(list(original), set(), set(), None))
            return None
        target = list(command.ids("replicas"))
        if not target or len(set(target)) < len(target) or not set(target) <= self.brokers.keys():
            return self.error("INVALID_REPLICA_ASSIGNMENT", text)
        merged = target + [r for r in original if r not in target]
        adding, removing = set(target) - set(original), set(original) - set(target)
        isr = part.isr & set(merged)
        needed = part.isr | part.elr | part.seats
        if not needed <= set(merged) and len(isr) < part.min_isr:
            return self.error("INVALID_REPLICA_ASSIGNMENT", text)
        runs = bool(adding or removing)
        self.change(name, isr=isr, lists=(merged, adding, removing, list(original) if runs else None))
        return None

    def do_log_info(self, command: Command) -> None:
        """R62."""
        broker, (name, part) = int(command.word()), self.find(command.word(1))
        comparison = self.comparisons.get(name)
        if part is None or comparison is None or comparison.state[0] != "ask" or broker not in self.brokers:
            return
        asked = comparison.state[1] + comparison.state[2]
        counts = str(broker) in asked.replace("(", ",").replace(")", ",").split(",")
        counts &= command.text("broker_epoch", "") == "" and command.text("leader_epoch", "") == ""
        counts &= command.text("error", "NONE") == "NONE"
        if counts:
            answer = (
                self.brokers[broker].epoch,
                command.integer("last_epoch"),
                command.integer("end_offset"),
            )
            comparison.answers[broker] = answer

    def do_feature(self, command: Command) -> None:
        """R108, B8."""
        level = command.integer("elr")
        if level not in (0, 1) or (not level and any(not part.isr for part in self.parts.values())):
            return self.error("INVALID_UPDATE_VERSION")
        was, self.elr = self.elr, bool(level)
        if level:
            self.cluster.setdefault("min.insync.replicas", "1")
            for name in self.every(
                leaderless=True
            ):  # whom F7 has kept, though it is no broker any more (B10)
                for gone in self.parts[name].isr - self.brokers.keys():
                    self.change(name, isr=self.parts[name].isr - {gone}, gone=gone)
        elif was:
            for name in self.every():
                self.change(name, mode="online")
        return None

    def do_advance(self, command: Command) -> None:
        end_ms = self.now_ms + int(command.word())
        for _ in range(ROUNDS):
            self.all_heartbeat()
        while True:
            stops = [
                comparison.since_ms + self.timeout_ms
                for comparison in self.comparisons.values()
                if comparison.state[0] == "ask" and not comparison.timed_out
            ]
            stops.append((self.now_ms // LEGACY_PASS_MS + 1) * LEGACY_PASS_MS)
            if min(stops) > end_ms:
                break
            self.now_ms = min(stops)
            if self.now_ms % LEGACY_PASS_MS == 0:
                for name in self.every(leaderless=True):
                    if self.allows_unclean(name[0]):
                        self.change(name, mode="unclean")
            self.compare()
        self.now_ms = end_ms

    def do_failover(self, command: Command) -> None:
        self.comparisons, self.forced = {}, {}
        for machine in self.brokers.values():
            # R26: the successor does not know since when, so each broker must be heard of anew
            machine.heard = set() if machine.stopping and not machine.fenced else None
        for broker in sorted(self.brokers):
            if self.brokers[broker].stopping and not self.brokers[broker].fenced:
                self.leave(broker)
        for name in self.every(leaderless=True):
            # what another controller has left half done, or its file did not allow (K21, F40)
            part = self.parts[name]
            trusted = {part.last_leader} if self.elr and not self.compares_logs else set()
            candidates = part.isr or part.elr or trusted
            if any(self.active(broker) for broker in part.replicas if broker in candidates):
                self.change(name, mode="online")

    def do_delete(self, command: Command) -> None:
        topic = command.word()
        doomed = [name for name in self.parts if name[0] == topic]
        if not doomed:
            return self.error("UNKNOWN_TOPIC_OR_PARTITION")
        for name in doomed:
            del self.parts[name]
        self.topics.pop(topic, None)
        self._errors.append(f"{topic} deleted")

    def do_show(self, command: Command) -> None:
        _, part = self.find(command.word())
        if part is None:
            return self.error("UNKNOWN_TOPIC_OR_PARTITION", command.word())
        self._errors.append(f"{command.word()} {part.line()}")
