"""Refinement: each step of the cluster is a step of the model."""
