"""What the Spark source decides about offsets: pure, fed by the shells beside this folder."""
