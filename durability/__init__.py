"""Proof of durability with Spark: ledgers on one side, what the cluster serves and keeps on the other.

The only package that may import pyspark; nothing imports it but its command line and the demo.
"""
