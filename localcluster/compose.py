"""The cluster of docker-compose.yml, with the methods of `localcluster.processes.LocalCluster`."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.localcluster.compose_disks import ContainerDisks
from holdfast.localcluster.health import probe
from holdfast.localcluster.nodes import ClusterError, Node, Nodes
from holdfast.localcluster.ports import LOOPBACK, loopback_with_free

#: (service, role, node id, and ports on the host, 0 where it has none: of clients, HTTP, of Kafka clients)
SERVICES = (
    ("controller-1", "controller", 101, 0, 18_404, 0),
    ("controller-2", "controller", 102, 0, 18_405, 0),
    ("controller-3", "controller", 103, 0, 18_406, 0),
    ("broker-1", "broker", 1, 19_092, 19_404, 19_192),
    ("broker-2", "broker", 2, 19_093, 19_405, 19_193),
    ("broker-3", "broker", 3, 19_094, 19_406, 19_194),
)
COMPOSE_FILE = "docker-compose.yml"
#: Of docker-compose.yml: where ports are published.
PUBLISH_ADDRESS = "PUBLISH_ADDRESS"
_PORT_IN_USE = "address already in use"
_ATTEMPTS, _PAUSE_S = 5, 3.0
_BUILD_S = 1_200.0
_EVERYWHERE = ("0.0.0.0", "::")
#: Where the volume of a node is in its container.
HOME = "/var/lib/holdfast"
#: Not `holdfast`: that is what Compose calls the project of a user whose clone is a folder of this name.
PROJECT = "holdfast-demo"


class ComposeCluster(Nodes):
    """Containers of a separate Compose project; a kill is `docker kill`."""

    def __init__(
        self, project_folder: Path, project: str | None = PROJECT, override: Path | None = None
    ) -> None:
        """`project`: None for the one that Compose itself takes in this folder. `override`: a further
        Compose file, whose keys win."""
        super().__init__([Node(role, node_id, *ports) for _, role, node_id, *ports in SERVICES])
        self.folder = project_folder
        self._environment = {**os.environ, **({} if project is None else {"COMPOSE_PROJECT_NAME": project})}
        if override is not None:
            self._environment["COMPOSE_FILE"] = f"{project_folder / COMPOSE_FILE}{os.pathsep}{override}"
        self._services = {node_id: service for service, _, node_id, *_ in SERVICES}
        self._host = ""
        #: set where each container has a disk of its own
        self.disks: ContainerDisks | None = None

    @classmethod
    def create(
        cls, project_folder: Path, project: str = PROJECT, override: Path | None = None
    ) -> "ComposeCluster":
        """A new cluster, at a loopback address with free ports, so that others may run beside it.

        Raises: ClusterError when it exists: `down` would delete its data.
        """
        if not (project_folder / COMPOSE_FILE).exists():
            raise ClusterError(f"there is no {COMPOSE_FILE} in {project_folder}: go where it is")
        cluster = cls(project_folder, project, override)
        if not cluster.is_gone(project):
            raise ClusterError(
                f"the Compose project {project} has containers or volumes already: if nothing in them is "
                f"needed, `docker compose -p {project} down -v` removes them"
            )
        ports = [port for node in cluster.nodes for port in (node.port, node.http_port, node.kafka_port)]
        cluster._host = loopback_with_free(filter(None, ports))
        cluster._environment[PUBLISH_ADDRESS] = cluster._host
        return cluster

    def is_gone(self, project: str) -> bool:
        """There are neither containers nor volumes of this project. Raises: ClusterError."""
        ours = ("-q", "--filter", f"label=com.docker.compose.project={project}")
        return not self._docker("ps", "-a", *ours) and not self._docker("volume", "ls", *ours)

    @property
    def project_asked_for(self) -> str | None:
        """The project's name where it was given; also without containers."""
        return self._environment.get("COMPOSE_PROJECT_NAME")

    @property
    def host(self) -> str:
        """Where the ports are published; of a cluster that was not made here the containers say it."""
        if not self._host:
            addresses = "{{range .HostConfig.PortBindings}}{{range .}}{{.HostIp}} {{end}}{{end}}"
            found = self._docker("inspect", "-f", addresses, self._container(self.nodes[0])).split()
            self._host = found[0] if found and found[0] not in _EVERYWHERE else LOOPBACK[0]
        return self._host

    def service(self, node: Node) -> str:
        """What docker-compose.yml calls it."""
        return self._services[node.node_id]

    def volume_folder(self, node: Node) -> Path:
        """Where the node's volume is on this machine. Raises: ClusterError."""
        found = self._docker(
            "inspect", "-f", f'{{{{range .Mounts}}}}{{{{if eq .Destination "{HOME}"}}}}'
            "{{.Source}}{{end}}{{end}}", self._container(node),
        ).strip()  # fmt: skip
        if not found:
            raise ClusterError(f"{node.name} has no volume at {HOME}")
        return Path(found)

    def data_folder(self, node: Node) -> Path | None:
        """Where the segment files are in the node's volume; None without the privileges to read there."""
        folder = self.volume_folder(node) / "data"
        return folder if os.access(folder, os.R_OK | os.X_OK) else None

    def up(self, timeout_s: float = 180.0) -> None:
        """Build the image if needed, start all containers, wait until they are healthy.

        `timeout_s` is for the containers; the first build installs packages, which may take longer.
        """
        for attempt in range(_ATTEMPTS):
            try:
                self._compose("up", "-d", "--build", timeout_s=timeout_s + _BUILD_S)
                break
            except ClusterError as error:
                # where the kernel's ports for outgoing connections begin earlier, one has it for a moment
                if _PORT_IN_USE not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE_S)
        self.wait_ready(self.nodes, timeout_s)

    def start(self, node: Node) -> None:
        self._compose("start", self._services[node.node_id])

    def kill(self, nodes: Sequence[Node]) -> None:
        """SIGKILL the containers of `nodes`."""
        for node in nodes:
            self._docker("kill", "-s", "KILL", self._container(node))

    def stop(self, nodes: Sequence[Node]) -> None:
        """Stop the containers cleanly."""
        self._compose("stop", *(self._services[node.node_id] for node in nodes), timeout_s=120.0)

    def pause(self, nodes: Sequence[Node]) -> None:
        """Freeze all processes of the containers."""
        self._compose("pause", *(self._services[node.node_id] for node in nodes))

    def resume(self, nodes: Sequence[Node]) -> None:
        """Let those go on that are paused."""
        states = self.states()
        paused = [self._services[node.node_id] for node in nodes if states.get(node) == "paused"]
        if paused:
            self._compose("unpause", *paused)

    def disconnect(self, nodes: Sequence[Node]) -> None:
        """Take the containers off the network of the project."""
        for node in nodes:
            self._docker("network", "disconnect", self._network(), self._container(node))

    def connect(self, nodes: Sequence[Node]) -> None:
        """Put those back that are off it, under the names that others know them by."""
        off = self.disconnected()
        for node in nodes:
            if node in off:
                alias = self._services[node.node_id]
                self._docker("network", "connect", "--alias", alias, self._network(), self._container(node))

    def states(self) -> dict[Node, str]:
        """What Docker says of each container that there is: running, paused, exited, ..."""
        return self._look("{{.State.Status}}")

    def lives(self) -> dict[Node, str]:
        """Tells one life of each container from the next; the same for one that is paused meanwhile."""
        return self._look("{{.State.StartedAt}} {{.State.FinishedAt}}")

    def pids(self) -> dict[Node, int]:
        """The first process of each container that runs, as this machine numbers it."""
        found = {node: int(pid) for node, pid in self._look("{{.State.Pid}}").items()}
        return {node: pid for node, pid in found.items() if pid}

    def addresses(self) -> dict[Node, str]:
        """The address of each container that runs and is on the network."""
        found = self._look("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
        return {node: address for node, address in found.items() if address}

    def _look(self, template: str) -> dict[Node, str]:
        """One question to Docker about all containers that there are."""
        service = '{{index .Config.Labels "com.docker.compose.service"}}'
        containers = self._compose("ps", "-a", "-q").split()
        if not containers:
            return {}
        said = self._docker("inspect", "-f", f"{service} {template}", *containers)
        by_service = dict(line.strip().partition(" ")[::2] for line in said.splitlines())
        return {
            node: by_service[self.service(node)] for node in self.nodes if self.service(node) in by_service
        }

    def disconnected(self) -> list[Node]:
        """Containers that are on no network."""
        networks = self._look("{{range .NetworkSettings.Networks}}x{{end}}")
        return [node for node, found in networks.items() if not found]

    @property
    def project(self) -> str:
        """The project's name, as its containers have it. Raises: ClusterError without containers."""
        label = '{{index .Config.Labels "com.docker.compose.project"}}'
        return self._docker("inspect", "-f", label, self._container(self.nodes[0])).strip()

    def _network(self) -> str:
        return f"{self.project}_default"

    def is_ready(self, node: Node) -> bool:
        """True when /readyz answers 200: Docker's own healthcheck says so only seconds later."""
        return probe(self.host, node.http_port, "/readyz", 2.0)[0]

    def wait_ready(self, nodes: Sequence[Node], timeout_s: float = 60.0) -> None:
        """Wait until all of `nodes` are ready. Raises: ClusterError."""
        deadline = time.monotonic() + timeout_s
        while waiting := [self._services[node.node_id] for node in nodes if not self.is_ready(node)]:
            if time.monotonic() > deadline:
                raise ClusterError(f"not ready after {timeout_s:.0f} s: {waiting}; see `docker compose logs`")
            time.sleep(0.2)

    def save_logs(self, folder: Path) -> None:
        """What all containers have printed goes into `folder`/compose.log: `down` removes it with them."""
        (folder / "compose.log").write_text(self._compose("logs", "--no-color", "--timestamps"))

    def last_words(self, node: Node, lines: int = 3) -> str:
        """The end of what a container has printed."""
        return self._compose("logs", "--no-color", "--tail", str(lines), self.service(node)).strip()

    def down(self, timeout_s: float = 120.0) -> None:
        """Stop all containers cleanly and remove them with their volumes."""
        self._compose("down", "-v", timeout_s=timeout_s)

    def _container(self, node: Node) -> str:
        found = self._compose("ps", "-a", "-q", self._services[node.node_id]).strip()
        if not found:
            raise ClusterError(f"no container for {self._services[node.node_id]}: is the project up?")
        return found

    def _compose(self, *arguments: str, timeout_s: float = 60.0) -> str:
        return self._docker("compose", *arguments, timeout_s=timeout_s)

    def _docker(self, *arguments: str, timeout_s: float = 60.0) -> str:
        command = ["docker", *arguments]
        try:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C in the terminal is for this process
            )
        except FileNotFoundError:
            raise ClusterError("docker is not installed here; `make demo` needs no containers") from None
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise ClusterError(f"`{' '.join(command)}` took longer than {timeout_s:.0f} s") from None
        except BaseException:
            # The daemon would do the rest all the same, perhaps only after the healing has looked.
            process.communicate()
            raise
        if process.returncode != 0:
            raise ClusterError(f"`{' '.join(command)}` failed:\n{err.strip()[-2000:]}")
        return out
