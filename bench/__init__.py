"""Load generators beside the machine's own limits. Tools, no tests: nothing passes or fails by time."""

from holdfast.cli.extras import require

if __name__ != "holdfast.bench":  # the checkout is on the path, too: one module, one name
    raise ImportError("import holdfast.bench")
require("bench")
