"""Rule 20 for keys: a record has another key than it was sent with."""

from holdfast.durability.rules.changed import changed, of_checksums

RULE = changed(
    name="key_changed",
    meaning="another key than it was sent with",
    false_alarm="none is known",
    differs="key_differ",
    detail=of_checksums("key_crc32c", "a key", "its key is gone", "its key"),
)
