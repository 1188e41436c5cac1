"""Proof of durability with Spark: ledgers on one side, what the cluster serves and keeps on the other.

The only package that may import pyspark; nothing imports it but its command line and the demo.
"""

if __name__ != "holdfast.durability":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.durability")
