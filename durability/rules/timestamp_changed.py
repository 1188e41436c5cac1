"""Rule 20 for timestamps: a record has another one than its producer gave it.

Not judged of records whose timestamp the broker has set (LogAppendTime).
"""

from holdfast.durability.rules.changed import changed

RULE = changed(
    name="timestamp_changed",
    meaning="another timestamp than it was sent with",
    false_alarm="none is known",
    differs="timestamp_differs",
    detail="concat('was sent with timestamp ', timestamp_ms, ', has ', log_timestamp_ms)",
)
