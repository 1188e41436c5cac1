"""What of a log's files would survive, asked of the simulated disk."""

import posixpath

from holdfast.sim.cluster.nodes import SimBroker, State
from holdfast.sim.machine.disk import LOG_DIRS, SimDisk
from holdfast.sim.machine.page_cache import SimFolder, SimInode
from holdfast.storage.clean_shutdown import FILE_NAME

#: of the first log dir
MARKER = f"{LOG_DIRS[0]}/{FILE_NAME}"
MARKERS = tuple(f"{log_dir}/{FILE_NAME}" for log_dir in LOG_DIRS)


def is_marked(broker: SimBroker) -> bool:
    """The process that stops has given a mark of a clean stop its name."""
    node = broker.node
    has_left = broker.state is State.STOPPING and node is not None and node.stopped.done()
    if not has_left or node is None or not node.log_manager.is_whole:
        return False  # one in a dir that failed is of an earlier stop
    return any(broker.machine.sim_disk.find(marker) is not None for marker in MARKERS)


def has_ended_cleanly(broker: SimBroker) -> bool:
    """The process that ends has stopped in order, or is cut off behind the name of its mark, which may be
    found and is true. With a log dir that failed on the way out no stop is clean, though it ends with 0."""
    node = broker.node
    if node is None or not node.log_manager.is_whole:
        return False
    return broker.exit_code == 0 or is_marked(broker)


def durable_size(sim_disk: SimDisk, folder: str) -> int:
    """Bytes of a log from its start on that surely survive a power cut: under durable names, also that of its
    folder, unbroken."""
    node = sim_disk.find(folder)
    parent, name = posixpath.split(folder)
    above = sim_disk.find(parent)
    if (
        not isinstance(node, SimFolder)
        or not isinstance(above, SimFolder)
        or above.durable.get(name) is not node
    ):
        return 0
    size = 0
    for name in sorted(node.cached):
        inode = node.cached[name]
        if not name.endswith(".log") or not isinstance(inode, SimInode):
            continue
        if not inode.cached:
            continue
        cached, durable = inode.cached, inode.durable
        if node.durable.get(name) is not inode:
            return size
        if not durable.startswith(cached):
            common = min(len(cached), len(durable))
            is_prefix = durable[:common] == cached[:common]
            return size + (common if is_prefix else _first_difference(cached, durable))
        size += len(cached)
    return size


def _first_difference(one: bytes | bytearray, other: bytes | bytearray) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def has_dropped_pages(sim_disk: SimDisk, folder: str) -> bool:
    """A flush of one of the files has failed, and its pages count as clean since."""
    node = sim_disk.find(folder)
    files = node.cached.values() if isinstance(node, SimFolder) else ()
    return any(isinstance(inode, SimInode) and inode.has_dropped_pages for inode in files)
