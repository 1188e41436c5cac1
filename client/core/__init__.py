"""What producers and consumers decide: pure, fed by the shells beside this folder."""
