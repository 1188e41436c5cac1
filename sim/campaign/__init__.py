"""Many runs: from a seed to a run, its verdict, its record, and a smaller one that fails alike."""
