"""The metadata quorum's state machine: what the active controller decides, and the node that runs it."""
