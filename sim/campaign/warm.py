"""Imported by the server that processes of seeds are forked from: pays once for what a first story pays for,
compiled codecs before all, a twentieth of its seconds. The story itself leaves nothing behind."""

import gc

from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run_spec import RunTemplate

play(RunTemplate(seconds=4.0).spec("1"))
gc.collect()
gc.freeze()  # collectors of the children never look at it
