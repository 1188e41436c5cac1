"""What befalls a simulated cluster: faults drawn one after the other, each with its end.

Owns the table of faults and their weights, who is hit (by role as often as by number), and when what was
broken is mended. Stays within the fault budget. A fault that cannot be played now is passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from holdfast.sim.cluster.nodes import SimBroker, SimController, SimNode, State
from holdfast.sim.cluster.world import World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.faults.disk_faults import DiskFaults
from holdfast.sim.faults.log_dir_faults import FailingDirs
from holdfast.sim.faults.lost_voter import LostVoter
from holdfast.sim.faults.names import FAULT_NAMES, NODE_FAULTS, ONLY_IF_NAMED
from holdfast.sim.faults.partial_heal import HealedSubset
from holdfast.sim.faults.replaced_voter import ReplacedVoter
from holdfast.sim.faults.sequences.links import AimedLinks
from holdfast.sim.faults.sequences.logs import AimedLogs
from holdfast.sim.faults.sequences.moves import AimedMoves
from holdfast.sim.faults.sequences.producers import AimedClients
from holdfast.sim.faults.sequences.replication import Aimed, Hands
from holdfast.sim.load.operator_acts import Operations
from holdfast.sim.machine.choices import between, one_in
from holdfast.sim.machine.connections import Host
from holdfast.sim.machine.crash_points import POINTS, Points

_MS = 1_000_000
#: What a supervisor waits before it starts a process anew.
_RESTART_MS = 200
#: draws of each weight, against one for no fault at all
_PER_WEIGHT = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How often what is tried."""

    #: about so long between two faults
    gap_ms: int = 1_500
    #: names of faults; empty: all
    only: tuple[str, ...] = ()
    #: by name of a fault; those not named have 1, or 0 if they are among the newer ones
    weights: dict[str, int] = field(default_factory=dict)
    #: instead of all that: (ms after the load has begun, name of a fault, or what befalls a node: "kill b2")
    script: tuple[tuple[int, str], ...] = ()


class Faults:
    """Plays faults from `start` to `heal`."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        #: when the next fault comes and which it is: two draws for each
        self._order = world.choices.stream("fault")
        self._played = 0
        #: what the fault that is played now draws: its own, so that one may be left out alone
        self._stream = self._order
        assert set(plan.only) | set(plan.weights) <= set(FAULT_NAMES), "a plan names faults that there are"
        self.budget = Budget(world)
        self._operations = Operations(world, self.budget, self._at)
        self._is_over = False
        #: machines whose restart is on its way
        self._returning: set[str] = set()
        #: machines that stay away while a core is healed
        self._away: set[str] = set()
        #: controllers that stay down until all is healed
        self._lost_voters: set[str] = set()
        self._lost_for_good = LostVoter(world, self._later)
        self._replaced = ReplacedVoter(world, self._at, self._kill)
        self._points = Points(world.trace)
        self._dirs = FailingDirs(world, self.budget, self._at)
        disks = DiskFaults(world, self.budget, self._at, self._return_later)
        for node in world.nodes:
            node.on_exit = self._return_later
        #: faults played, by name
        self.counts: dict[str, int] = {}
        self._table: dict[str, Callable[[], bool]] = {
            "kill_broker": lambda: self._kill(self._any(self._world.brokers)),
            "kill_leader": lambda: self._kill(self._leader()),
            "kill_busy_leader": self._kill_busy_leader,
            "kill_controller": lambda: self._kill(self._any(self._world.controllers)),
            "kill_active": lambda: self._kill(self._world.active_controller()),
            "kill_all_brokers": self._kill_all,
            "power_broker": lambda: self._power(self._any(self._world.brokers)),
            "power_leader": lambda: self._power(self._leader()),
            "power_controller": lambda: self._power_controller(self._any(self._world.controllers)),
            "power_all": self._power_all,
            "stop_broker": lambda: self._stop(self._any(self._world.brokers)),
            "stop_controller": lambda: self._stop(self._any(self._world.controllers)),
            "pause_broker": lambda: self._pause(self._any(self._world.brokers)),
            "pause_leader": lambda: self._pause(self._leader()),
            "pause_active": lambda: self._pause(self._world.active_controller()),
            "isolate_broker": lambda: self._isolate(self._any(self._world.brokers)),
            "isolate_leader": lambda: self._isolate(self._leader()),
            "isolate_active": lambda: self._isolate(self._world.active_controller()),
            "split": self._split,
            "one_way": self._one_way,
            "bridge": self._bridge,
            "cut_controllers": self._cut_controllers,
            "cut_clients": self._cut_clients,
            "reset": self._reset,
            "clog": self._clog,
            "slow_disk": lambda: disks.slow(self._stream),
            "hang_disk": lambda: disks.hang(self._stream),
            "io_error": lambda: disks.fail_flush(self._stream),
            "disk_full": lambda: disks.fill(self._stream),
            "crash_at_point": self._crash_at_point,
        }
        self._table |= {
            "restart_broker": lambda: self._restart(self._any(self._world.brokers)),
            "abort_stop": self._abort_stop,
            "kill_site": self._kill_site,
            "lose_voter": lambda: self._lose_voter(self._any(self._world.controllers)),
            "fence_leader": lambda: self._fence(self._leader()),
            "mute_controllers": self._mute_controllers,
            "jump_clock": self._jump_clock,
            "drift_clock": self._drift_clock,
            "append_error": lambda: disks.fail_append(self._stream),
            "flip_bit": lambda: disks.flip_bit(self._stream),
            "keep_copy": lambda: disks.keep_copy(self._stream),
            "restore_copy": lambda: disks.restore_copy(self._stream),
            "fail_dir": lambda: self._dirs.fail(self._stream),
        }
        hands = Hands(
            self._later, self._kill, self._kill_all, self._restart_after, self._crash_at, self._return_later
        )
        aimed = Aimed(world, self.budget, self._points, self._operations, hands)
        clients = AimedClients(world, self.budget, self._operations, hands)
        links = AimedLinks(world, self._operations, hands)
        logs = AimedLogs(world, self.budget, self._points, hands)
        moves = AimedMoves(world, self.budget, self._operations, hands)
        tables = (
            aimed.table
            | self._operations.table
            | aimed.newest
            | clients.table
            | links.table
            | logs.table
            | moves.table
            | links.newest
            | self._operations.newest
            | {"replace_voter": self._replaced.replace}
        )
        for name, act in tables.items():
            self._table[name] = lambda act=act: act(self._stream)  # type: ignore[misc]
        assert tuple(self._table) == FAULT_NAMES
        self._at_nodes: dict[str, Callable[[SimNode], bool]] = {
            "kill": self._kill,
            "power": lambda node: (
                self._power(node) if isinstance(node, SimBroker) else self._power_controller(node)
            ),
            "stop": self._stop,
            "pause": self._pause,
            "isolate": self._isolate,
        }
        assert tuple(self._at_nodes) == NODE_FAULTS

    def start(self) -> None:
        """Play the first fault before long, or those of a script each at its time."""
        if self._world.shape.replaces_voters:
            self._replaced.start()
        for number, (after_ms, name) in enumerate(self._plan.script):
            self._at(after_ms, partial(self._play_scripted, number, name))
        if not self._plan.script:
            self._next()

    def lose_a_voter(self, load_ms: int) -> None:
        """One is lost to the end, within so many ms from now."""
        self._lost_for_good.start(load_ms)

    def heal(self, healed: HealedSubset | None = None) -> None:
        """Everything works again: links, disks, processes. Machines that are down boot. With a core all that
        is true of its machines only, and the others are away until the next call."""
        self._is_over = True
        self._points.disarm()
        world = self._world
        world.operator_queue.clear()
        world.trace.add("heal", "" if healed is None else " ".join(sorted(healed.voters | healed.brokers)))
        away = [node for node in world.nodes if healed is not None and not healed.has(node)]
        away = [node for node in away if node.name not in world.lost]  # lost in its own way
        self._away = {node.name for node in away}
        for node in away:
            self._send_away(node)
        self._heal_links()
        for node in world.nodes:
            if node.wall_shift_ms:
                node.set_wall(0)  # a leader refuses records that are dated an hour ahead of its own clock
            if node not in away:
                self._heal_node(node)
        for after_ms in range(0, 5_000, 500):  # also those that are just about to start
            self._at(after_ms, lambda: self._dirs.replace_disks(at_once=True))

    def _send_away(self, node: SimNode) -> None:
        """Without its process where that may end; else no other node reaches it."""
        self.budget.update()
        if node.state is not State.DOWN and self.budget.may_kill(node):
            self.budget.killed(node)
            node.kill()

    def _heal_links(self) -> None:
        network = self._world.network
        network.heal()
        away = [node.machine.host for node in self._world.nodes if node.name in self._away]
        network.cut(away, [host for host in self._hosts() if host not in away])
        self._lost_for_good.cut()

    def _heal_node(self, node: SimNode) -> None:
        node.machine.sim_disk.forget_faults()
        node.machine.sim_disk.be_slow(None)
        if node.state is State.PAUSED:
            node.resume()
        elif node.state is State.DOWN and node.name not in self._returning and not self._is_dead(node):
            node.boot()

    def _is_dead(self, node: SimNode) -> bool:
        """It has no power any more, to the end."""
        return node.name in self._world.lost and not node.machine.host.is_up

    # --- the way of time -------------------------------------------------------------------------------

    def _at(self, delay_ms: int, what: Callable[[], None]) -> None:
        loop = self._world.loop
        loop.at_ns(loop.now_ns + delay_ms * _MS, loop.kernel, what)

    def _later(self, delay_ms: int, what: Callable[[], None]) -> None:
        """As `_at`, but nothing of it happens once all is healed."""
        self._at(delay_ms, lambda: None if self._is_over else what())

    def _next(self) -> None:
        gap_ms = self._plan.gap_ms
        self._at(between(self._order, gap_ms // 4, 2 * gap_ms - gap_ms // 4), self._play)

    def _play(self) -> None:
        if self._is_over:
            return
        self.budget.update()
        self._dirs.replace_disks(at_once=False)
        name = self._pick()
        if name is not None:
            self._world.trace.add("fault", name)
            self._stream = self._world.choices.stream(f"fault.{self._played}")
            self._count(name, self._table[name]())
        self._played += 1
        self._next()

    def _play_scripted(self, number: int, name: str) -> None:
        if self._is_over:
            return
        self.budget.update()
        self._world.trace.add("fault", name)
        self._stream = self._world.choices.stream(f"fault.{number}")
        what, _, whom = name.partition(" ")
        if whom:
            node = next(node for node in self._world.nodes if node.name == whom)
            is_played = node.is_up and self._at_nodes[what](node)
        else:
            is_played = self._table[name]()
        self._count(name, is_played)

    def _count(self, name: str, is_played: bool) -> None:
        if is_played:
            self.counts[name] = self.counts.get(name, 0) + 1
        else:
            self._world.trace.add("skipped", name)

    def _pick(self) -> str | None:
        """A fault by its weight; None, the simplest choice, very rarely."""
        plan = self._plan
        weights = [
            _PER_WEIGHT * plan.weights.get(name, int(name in plan.only or name not in ONLY_IF_NAMED))
            if not plan.only or name in plan.only
            else 0
            for name in self._table
        ]
        left = self._order.draw(1 + sum(weights))
        for name, weight in zip(self._table, weights, strict=True):
            if 0 < left <= weight:
                return name
            left -= weight
        return None

    def _return_later(self, node: SimNode, at_least_ms: int = 20) -> None:
        """Boot it after a while: within its session as often as after, soon when everything was healed."""
        if node.name in self._returning:
            return
        self._returning.add(node.name)
        if self._is_over:
            self._at(_RESTART_MS, lambda: self._return(node))
            return
        stream = self._world.choices.stream(f"return.{node.name}.{node.boots}")
        longest_ms = 600 if one_in(stream, 2) else 5_000
        self._at(between(stream, at_least_ms, max(at_least_ms, longest_ms)), lambda: self._return(node))

    def _return(self, node: SimNode) -> None:
        self._returning.discard(node.name)
        if node.state is State.DOWN and node.name not in self._away and not self._is_dead(node):
            node.boot()

    # --- who -------------------------------------------------------------------------------------------

    def _any(self, nodes: "list[SimBroker] | list[SimController]") -> SimNode | None:
        up = [node for node in nodes if node.is_up]
        return up[self._stream.draw(len(up))] if up else None

    def _node(self) -> SimNode:
        return self._world.nodes[self._stream.draw(len(self._world.nodes))]

    def _leader(self) -> SimNode | None:
        """The leader of a drawn partition."""
        rows = self._world.partitions()
        if not rows:
            return None
        _, row = rows[self._stream.draw(len(rows))]
        return next((b for b in self._world.brokers if b.node_id == row.leader and b.is_up), None)

    # --- processes and power ---------------------------------------------------------------------------

    def _kill(self, node: SimNode | None) -> bool:
        if node is None or not self.budget.may_kill(node):
            return False
        self.budget.killed(node)
        node.kill()
        self._return_later(node)
        return True

    def _restart(self, node: SimNode | None) -> bool:
        """Killed and back before anybody has noticed."""
        return self._restart_after(node, between(self._stream, 1, 60))

    def _restart_after(self, node: SimNode | None, after_ms: int) -> bool:
        if node is None or not self.budget.may_kill(node):
            return False
        self.budget.killed(node)
        node.kill()
        self._returning.add(node.name)
        self._at(after_ms, lambda: self._return(node))
        return True

    def _abort_stop(self) -> bool:
        """A broker is asked to stop, and killed before it has."""
        node = self._any(self._world.brokers)
        if node is None or not self.budget.may_stop(node):
            return False
        node.stop()
        boots = node.boots
        self._at(between(self._stream, 1, 80), lambda: self._crash_at(node, boots, "its stop", False))
        return True

    def _kill_site(self) -> bool:
        """Every process of every machine at once."""
        if not self._kill_all():
            return False
        for controller in self._world.controllers:
            if controller.state is not State.DOWN:
                controller.kill()
                self._return_later(controller)
        return True

    def _lose_voter(self, node: SimNode | None) -> bool:
        """A voter without power until all is healed; the others stay a majority."""
        voters = self._world.controllers
        lost = self._lost_voters | self._world.lost
        if node is None or 2 * (len(lost | {node.name})) >= len(voters):
            return False
        self._lost_voters.add(node.name)
        node.lose_power()
        return True

    def _kill_all(self) -> bool:
        if not self.budget.may_kill_all():
            return False
        for broker in self._world.brokers:
            if broker.is_up:
                self.budget.killed(broker)
                broker.kill()
                self._return_later(broker)
        return True

    def _power(self, node: SimNode | None) -> bool:
        if not isinstance(node, SimBroker) or not self.budget.may_lose(node):
            return False
        self.budget.lost(node)
        node.lose_power()
        self._return_later(node)
        return True

    def _power_controller(self, node: SimNode | None) -> bool:
        if node is None:
            return False
        node.lose_power()  # a voter says nothing that is not durable
        self._return_later(node)
        return True

    def _crash_at_point(self) -> bool:
        """A machine goes down right behind one of its effects; some are only reached by a clean stop."""
        node = self._node()
        names = list(POINTS)
        name = names[self._stream.draw(len(names))]
        has_power = one_in(self._stream, 2)
        loop = self._world.loop

        def reached() -> None:
            loop.at_ns(loop.now_ns, loop.kernel, self._crash_at, node, node.boots, name, not has_power)

        is_on_the_way_out = name.startswith("mark")
        self._points.arm(name, node, 0 if is_on_the_way_out else self._stream.draw(3), reached)
        if is_on_the_way_out and node.is_up and self.budget.may_stop(node):
            node.stop()
        return True

    def _kill_busy_leader(self) -> bool:
        """A leader is killed while its followers and clients are in the middle of something."""
        node, loop = self._leader(), self._world.loop
        if node is None:
            return False
        boots = node.boots

        def reached() -> None:
            loop.at_ns(loop.now_ns, loop.kernel, self._crash_at, node, boots, "bytes.arrived", False)

        self._points.arm("bytes.arrived", node, self._stream.draw(30), reached)
        return True

    def _crash_at(self, node: SimNode, boots: int, name: str, loses_power: bool) -> None:
        if node.boots != boots or node.state not in (State.RUNNING, State.STOPPING):
            return
        self.budget.update()
        if isinstance(node, SimBroker) and loses_power:
            if not self.budget.may_lose(node):
                return
            self.budget.lost(node)
        elif not self.budget.may_kill(node):
            return
        self.budget.killed(node)
        what = f"{'power' if loses_power else 'kill'} at {name}"
        self.counts[what] = self.counts.get(what, 0) + 1
        self._world.trace.add("point", f"{node.name} {what}")
        if loses_power:
            node.lose_power()
        else:
            node.kill()
        self._return_later(node)

    def _power_all(self) -> bool:
        """The whole site; with brokers only where they may lose what they have not flushed."""
        is_whole = self.budget.may_lose_all()
        hit: list[SimNode] = [*self._world.controllers, *(self._world.brokers if is_whole else ())]
        for node in hit:
            if node.state is not State.DOWN:
                if isinstance(node, SimBroker):
                    self.budget.lost(node)
                node.lose_power()
                self._return_later(node)
        return True

    def _stop(self, node: SimNode | None) -> bool:
        if node is None or not self.budget.may_stop(node):
            return False
        node.stop()
        return True  # it ends by itself and is brought back then

    def _pause(self, node: SimNode | None) -> bool:
        if node is None:
            return False
        node.pause()
        boots = node.boots

        def resume() -> None:
            if node.state is State.PAUSED and node.boots == boots:
                node.resume()

        self._at(between(self._stream, 50, 4_000), resume)
        return True

    # --- network ---------------------------------------------------------------------------------------

    def _cut_between(
        self, ones: list[Host], others: list[Host], *, one_way: bool = False, at_least_ms: int = 100
    ) -> bool:
        """Cut every link from one side to the other for a while."""
        network = self._world.network
        network.cut(ones, others, one_way=one_way)
        self._at(between(self._stream, at_least_ms, 5_000), self._heal_links)
        return True

    def _hosts(self) -> list[Host]:
        return list(self._world.network.hosts.values())

    def _isolate(self, node: SimNode | None) -> bool:
        if node is None:
            return False
        host = node.machine.host
        return self._cut_between([host], [other for other in self._hosts() if other is not host])

    def _split(self) -> bool:
        """Every host on one of two sides."""
        sides: tuple[list[Host], list[Host]] = ([], [])
        for host in self._hosts():
            sides[self._stream.draw(2)].append(host)
        return self._cut_between(*sides)

    def _one_way(self) -> bool:
        """One node hears the others, who do not hear it."""
        nodes = self._world.nodes
        host = nodes[self._stream.draw(len(nodes))].machine.host
        return self._cut_between(
            [host], [other for other in self._hosts() if other is not host], one_way=True
        )

    def _bridge(self) -> bool:
        """Two halves that only one host can reach both of."""
        hosts = self._hosts()
        between_them = hosts[self._stream.draw(len(hosts))]
        sides: tuple[list[Host], list[Host]] = ([], [])
        for host in hosts:
            if host is not between_them:
                sides[self._stream.draw(2)].append(host)
        return self._cut_between(*sides)

    def _cut_controllers(self) -> bool:
        """Heartbeats of a broker are cut off, its fetches go on."""
        broker = self._any(self._world.brokers)
        return broker is not None and self._cut_between(
            [broker.machine.host], [c.machine.host for c in self._world.controllers]
        )

    def _fence(self, node: SimNode | None) -> bool:
        """A broker is out of sight of the controllers for longer than its session; everything else works."""
        return node is not None and self._cut_between(
            [node.machine.host], [c.machine.host for c in self._world.controllers], at_least_ms=1_600
        )

    def _mute_controllers(self) -> bool:
        """A broker's heartbeats arrive, and it hears nothing of the controllers."""
        broker = self._any(self._world.brokers)
        return broker is not None and self._cut_between(
            [c.machine.host for c in self._world.controllers], [broker.machine.host], one_way=True
        )

    def _cut_clients(self) -> bool:
        """Clients do not reach a broker that all nodes reach."""
        broker = self._any(self._world.brokers)
        return broker is not None and self._cut_between(
            [broker.machine.host], [c.machine.host for c in self._world.clients]
        )

    def _reset(self) -> bool:
        """Some connections of a host are forgotten on their way."""
        connections = list(self._world.network.connections)
        for connection in connections:
            if one_in(self._stream, 3):
                connection.reset()
        return bool(connections)

    def _clog(self) -> bool:
        """Nothing that is sent into a link arrives before a while has passed."""
        network = self._world.network
        links = network.links()
        source, target, _ = links[self._stream.draw(len(links))]
        network.clog(source, target, between(self._stream, 50, 3_000) * _MS)
        return True

    # --- clocks ----------------------------------------------------------------------------------------

    def _jump_clock(self) -> bool:
        """The wall clock of a machine is put forward or back."""
        node, hours = self._node(), between(self._stream, -48, 48)
        node.set_wall(hours * 3_600_000)
        return True

    def _drift_clock(self) -> bool:
        """A machine's clock runs faster or slower by up to a tenth from now on."""
        node = self._node()
        node.set_drift(between(self._stream, -100_000, 100_000))
        return True
