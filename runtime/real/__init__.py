"""The runtime of this machine: asyncio, TCP, files. Only entry points and tools import it."""
