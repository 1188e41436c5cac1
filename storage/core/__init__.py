"""What a log decides without a disk: leader epochs, producer state, flush policy, retention, file names."""
