"""What logs decide without a disk: epochs, producers' state, flush policy, retention, file names."""
