"""Faults of several steps, each aimed at a state that random faults hardly ever reach."""
