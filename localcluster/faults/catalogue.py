"""Every kind of fault by name. Importing this module registers how each is undone."""

from holdfast.localcluster.faults import clients, clocks, damage, disks, limits, network, processes
from holdfast.localcluster.faults.fault import Fault

FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        processes.Kill,
        processes.Stop,
        processes.Pause,
        processes.PowerLoss,
        damage.FlipBit,
        damage.CutFile,
        damage.RemoveFile,
        damage.WipeDisk,
        limits.FewHandles,
        limits.LittleMemory,
        limits.NoRoomInFiles,
        limits.LimitedStart,
        network.Partition,
        network.SlowLinks,
        clocks.ClockJump,
        disks.FullDisk,
        disks.FrozenDisk,
        disks.SlowDisk,
        clients.IdleConnections,
        clients.HalfFrames,
        clients.UnreadFetches,
        clients.MetadataFlood,
        clients.Garbage,
    )
}
