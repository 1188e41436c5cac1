"""The rules of a second controller, slow and plain, written from their text and not from the code they judge.

Sets and dicts that are changed in place: no log, no images, no events. Nothing of `controller` is imported
here. Sources: R1-R22, R60-R66, R100-R109 and the decisions D8; KIP-966 "ELR update", "Leader election",
"Unclean recovery".
"""

from dataclasses import dataclass, field

LEGACY_PASS_MS = 300_000
#: names of strategies, in small letters (D8)
STRATEGIES = {
    "aggressive": "Aggressive",
    "proactive": "Aggressive",
    "balanced": "Balanced",
    "none": "None",
    "manual": "None",
}


@dataclass
class Machine:
    """A broker, as far as elections care."""

    epoch: int
    fenced: bool = True
    stopping: bool = False
    #: brokers that were heard of since its shutdown began, or since the controller changed
    heard: set[int] | None = None

    @property
    def active(self) -> bool:
        return not self.fenced and not self.stopping


@dataclass
class Part:
    """A partition, to be changed in place."""

    replicas: list[int]
    isr: set[int]
    leader: int | None
    min_isr: int
    leader_epoch: int = 0
    epoch: int = 0
    elr: set[int] = field(default_factory=set)
    seats: set[int] = field(default_factory=set)
    last_leader: int | None = None
    recovering: bool = False
    adding: set[int] = field(default_factory=set)
    removing: set[int] = field(default_factory=set)
    original: list[int] | None = None

    def facts(self) -> tuple[object, ...]:
        """Everything but its epoch, to see whether something changed."""
        return (
            tuple(self.replicas),
            frozenset(self.isr),
            self.leader,
            self.min_isr,
            self.leader_epoch,
            frozenset(self.elr),
            frozenset(self.seats),
            self.last_leader,
            self.recovering,
            frozenset(self.adding),
            frozenset(self.removing),
            None if self.original is None else tuple(self.original),
        )

    def line(self) -> str:
        """As scenario files print it."""
        text = (
            f"leader={none(self.leader)}@{self.leader_epoch} isr={ids(self.isr)} elr={ids(self.elr)} "
            f"last_known_elr={ids(self.seats)} last_known_leader={none(self.last_leader)} "
            f"min_isr={self.min_isr} pe={self.epoch}"
        )
        text += " recovering" if self.recovering else ""
        text += f" adding={ids(self.adding)}" if self.adding else ""
        return text + (f" removing={ids(self.removing)}" if self.removing else "")


@dataclass
class Comparison:
    """A comparison of logs that waits or asks (R60-R65)."""

    identity: tuple[int, int, str]
    since_ms: int
    #: ("wait", ids) or ("ask", must, others)
    state: tuple[str, ...] = ()
    timed_out: bool = False
    #: by broker: (broker epoch, last epoch, end offset)
    answers: dict[int, tuple[int, int, int]] = field(default_factory=dict)


def ids(members: set[int] | list[int]) -> str:
    return "(" + ",".join(map(str, sorted(members))) + ")"


def none(value: int | None) -> str:
    return "none" if value is None else str(value)


Name = tuple[str, int]


class SecondCluster:
    """Brokers, partitions and comparisons of logs, and the rules by which they change."""

    def __init__(self) -> None:
        self.manager = True
        self.elr = True
        self.timeout_ms = 300_000
        self.now_ms = 0
        self.brokers: dict[int, Machine] = {}
        self.parts: dict[Name, Part] = {}
        self.cluster: dict[str, str] = {"min.insync.replicas": "1"}
        self.topics: dict[str, dict[str, str]] = {}
        self.comparisons: dict[Name, Comparison] = {}
        #: what an operator asked for: (strategy, configured then)
        self.forced: dict[Name, tuple[str, str]] = {}
        self._epochs = 0
        #: lines of the command under way
        self._errors: list[str] = []
        self._told: list[tuple[Name, int, str]] = []

    # --- looking -----------------------------------------------------------------------------------------

    def active(self, broker: int) -> bool:
        return broker in self.brokers and self.brokers[broker].active

    def setting(self, topic: str, key: str) -> str | None:
        return self.topics.get(topic, {}).get(key, self.cluster.get(key))

    @property
    def compares_logs(self) -> bool:
        """The manager needs the sets of ELR (R69)."""
        return self.manager_is_on and self.elr

    @property
    def manager_is_on(self) -> bool:
        switch = self.cluster.get("unclean.recovery.manager.enabled")
        return self.manager if switch is None else switch == "true"

    def allows_unclean(self, topic: str) -> bool:
        """A strategy that is set counts before the flag, with the manager on (R69)."""
        strategy = self.setting(topic, "unclean.recovery.strategy") if self.manager_is_on else None
        if strategy is not None:
            return not self.compares_logs and strategy.lower() == "aggressive"
        return not self.compares_logs and self.setting(topic, "unclean.leader.election.enable") == "true"

    # --- the transition of one partition (R4) ------------------------------------------------------------

    def change(
        self,
        name: Name,
        *,
        isr: set[int] | None = None,
        lists: tuple[list[int], set[int], set[int], list[int] | None] | None = None,
        lossy: int | None = None,
        gone: int | None = None,
        leaving: int | None = None,
        recovered: bool | None = None,
        mode: str | None = None,
        chosen: int | None = None,
    ) -> None:
        """R4 in its order; `leaving` counts as inactive, `lossy` is never eligible, `gone` is no broker."""
        part = self.parts[name]
        before = part.facts()
        old_isr, old_leader, old_replicas = set(part.isr), part.leader, set(part.replicas)
        old_known = part.last_leader
        if mode is None:
            mode = "unclean" if self.allows_unclean(name[0]) else "online"
        configured = int(self.setting(name[0], "min.insync.replicas") or 1)
        new_isr = set(part.isr if isr is None else isr)
        if lists is not None:
            part.replicas, part.adding, part.removing, part.original = lists
        # 1: a reassignment ends when those that come are in sync, and enough of the final replicas are (R101)
        if part.original is not None:
            final = [r for r in part.replicas if r not in part.removing]
            stay = new_isr & set(final)
            up = {r for r in part.replicas if self.active(r)}
            # not by the record that elects one of those that go, where none of the others is there
            needed = chosen in part.removing or (
                mode == "unclean" and chosen is None and not stay & up and bool(part.removing & up)
            )
            if part.adding <= stay and len(stay) >= min(configured, len(final)) and not needed:
                part.replicas, part.adding, part.removing, part.original = final, set(), set(), None
                new_isr = stay
        replicas = set(part.replicas)
        part.min_isr = min(configured, len(part.replicas if part.original is None else part.original))
        # 2: R5, R6
        old_elr, old_seats = set(part.elr), set(part.seats)

        def settle(members: set[int]) -> None:
            if not self.elr or len(members) >= part.min_isr:
                part.elr, part.seats = set(), set()
                return
            part.elr = ((old_elr | old_isr) - members - {lossy, gone}) & replicas
            part.seats = ((old_seats | old_elr | old_isr) - members - part.elr - {gone}) & replicas

        settle(new_isr)
        # 3: R11, R12, R18
        if part.last_leader not in replicas:
            part.last_leader = None
        ready = {r for r in replicas if self.active(r) and r != leaving}
        complete = (new_isr or part.elr) & ready
        order = part.replicas
        winner, loses = None, False
        if chosen is not None:
            winner, loses = (chosen, chosen not in complete) if chosen in ready else (None, False)
        elif mode == "preferred" and order[0] in new_isr & ready:
            winner = order[0]
        elif old_leader in complete:
            winner = old_leader
        elif complete:
            winner = next(r for r in order if r in complete)
        elif (
            self.elr and not self.compares_logs and not new_isr and not part.elr and part.last_leader in ready
        ):
            winner, loses = part.last_leader, True
        elif mode == "unclean" and ready:
            winner, loses = next(r for r in order if r in ready), True
        joined = winner is not None and winner not in new_isr
        if recovered is not None:
            part.recovering = not recovered
        # 4, 5: R10, R13, D8.1 and D8.4
        if winner is not None and joined:
            if loses:
                kept = (part.seats | part.elr | new_isr) - {winner}
                part.elr = set()
                part.seats = kept if self.compares_logs and part.min_isr > 1 else set()
                part.recovering = True
            else:
                settle({winner})
            new_isr = {winner}
        if winner is None and not self.elr and not new_isr:
            new_isr = old_isr & replicas
        # 6-8: R2, R7
        part.isr, part.leader = new_isr, winner
        if winner is not None or not self.elr:
            part.last_leader = None
        elif old_leader is not None:
            part.last_leader = old_leader if old_leader in replicas else None
        elif old_known is None and len(old_isr) == 1 and not new_isr and old_isr != {gone}:
            (last,) = old_isr  # whom F7 has kept
            part.last_leader = last if last in replicas else None
        if winner != old_leader or joined or old_replicas - replicas:
            part.leader_epoch += 1
        if part.facts() != before:
            part.epoch += 1

    def every(self, *, leaderless: bool = False) -> list[Name]:
        return [name for name in sorted(self.parts) if not leaderless or self.parts[name].leader is None]

    # --- brokers -----------------------------------------------------------------------------------------

    def leave(self, broker: int, *, lossy: bool = False, gone: bool = False) -> None:
        """R20, R32, B10."""
        for name in self.every():
            part = self.parts[name]
            seats = set(part.isr)
            seats |= part.elr if lossy or gone else set()
            seats |= part.seats if gone else set()
            if broker in seats:
                self.change(
                    name,
                    isr=part.isr - {broker},
                    leaving=broker,
                    lossy=broker if lossy else None,
                    gone=broker if gone else None,
                )

    def fence(self, broker: int) -> None:
        machine = self.brokers.get(broker)
        if machine is not None and not machine.fenced:
            self.leave(broker)
            machine.fenced = True

    def heartbeat(self, broker: int, *, stop: bool = False) -> None:
        """R21-R23."""
        machine = self.brokers[broker]
        for other in self.brokers.values():
            if other.heard is not None:
                other.heard.add(broker)
        if machine.fenced:
            if not stop:
                machine.fenced = False
                for name in self.every(leaderless=True):
                    self.change(name)
            return
        if machine.stopping:
            others = {b for b in self.brokers if self.active(b)}
            if machine.heard is None or others <= machine.heard:
                self.fence(broker)
        elif stop and any(part.leader == broker for part in self.parts.values()):
            machine.stopping, machine.heard = True, set()
            self.leave(broker)
        elif stop:
            self.fence(broker)

    def all_heartbeat(self, *but: int) -> None:
        for broker in sorted(self.brokers):
            if broker not in but and not self.brokers[broker].fenced:
                self.heartbeat(broker, stop=self.brokers[broker].stopping)

    # --- comparisons of logs -----------------------------------------------------------------------------

    def strategy(self, name: Name) -> str:
        """R14, R69; "None" also while a complete replica is awaited."""
        if not self.compares_logs:
            self.forced = {}
            return "None"
        part = self.parts[name]
        configured = self.configured(name[0])
        wanted = configured
        if name in self.forced:
            if self.forced[name][1] == configured:
                wanted = self.forced[name][0]
            else:
                del self.forced[name]
        if wanted == "Balanced" and (part.isr or part.elr):
            return "None"
        return wanted

    def configured(self, topic: str) -> str:
        strategy = self.setting(topic, "unclean.recovery.strategy")
        if strategy is not None:
            return STRATEGIES[strategy.lower()]
        return "Aggressive" if self.setting(topic, "unclean.leader.election.enable") == "true" else "Balanced"

    def compare(self) -> None:
        """Begin, go on with and end comparisons; called after everything that happens."""
        for name in sorted(self.comparisons.keys() | self.parts.keys()):
            part = self.parts.get(name)
            if part is None or part.leader is not None:
                self.forced.pop(name, None)
                if self.comparisons.pop(name, None) is not None:
                    self.tell(name, "cancelled")
                continue
            strategy = self.strategy(name)
            identity = (part.leader_epoch, part.epoch, strategy)
            if name in self.comparisons and self.comparisons[name].identity != identity:
                del self.comparisons[name]
                self.tell(name, "cancelled")
            if strategy != "None":
                if name not in self.comparisons:
                    self.comparisons[name] = Comparison(identity, self.now_ms)
                self.go_on(name, part, self.comparisons[name], strategy)

    def go_on(self, name: Name, part: Part, comparison: Comparison, strategy: str) -> None:
        ready = {r for r in part.replicas if self.active(r)}
        by_seats = strategy == "Balanced" and bool(part.seats)
        state: tuple[str, ...]
        if by_seats and part.seats - ready:
            state = ("wait", ids(part.seats - ready))
        elif by_seats:
            state = ("ask", ids(part.seats), ids(ready - part.seats))
        elif not ready:
            state = ("wait", ids(part.replicas))
        elif strategy == "Balanced":
            state = ("ask", ids(ready), "()")
        else:
            state = ("ask", "()", ids(ready))
        if state[0] == "ask":
            if by_seats and comparison.state[:1] != ("ask",):
                comparison.since_ms, comparison.timed_out = self.now_ms, False
            if self.now_ms >= comparison.since_ms + self.timeout_ms:
                comparison.timed_out = True
            valid = {
                r: answer[1:]
                for r, answer in comparison.answers.items()
                if r in ready and answer[0] == self.brokers[r].epoch
            }
            # fewer than min ISR may all have lost their tails
            proof = len(part.seats) >= max(1, part.min_isr)
            if by_seats:
                everyone = ready if proof else set(part.replicas)
                done = part.seats <= valid.keys() and (comparison.timed_out or valid.keys() == everyone)
            elif comparison.timed_out:
                done = bool(valid)
            else:
                done = valid.keys() == (set(part.replicas) if strategy == "Balanced" else ready)
            if done:
                if proof and part.seats <= valid.keys():
                    # the seats hold what was committed, and so does a longer log of the same epoch: no other,
                    # unless the seats have nothing at all
                    last, end = max(valid[r] for r in part.seats)
                    if end:
                        valid = {
                            r: answer for r, answer in valid.items() if r in part.seats or answer[0] == last
                        }
                best = min(
                    valid,
                    key=lambda r: (-valid[r][0], -valid[r][1], r not in part.seats, part.replicas.index(r)),
                )
                del self.comparisons[name]
                self.forced.pop(name, None)
                self.change(name, chosen=best)
                assert part.leader == best
                self.tell(name, f"elected {best}")
                return
        if state != comparison.state:
            comparison.state = state
            self.tell(name, " also ".join((f"{state[0]} {state[1]}", *state[2:])))

    def tell(self, name: Name, text: str) -> None:
        self._told.append((name, len(self._told), text))
