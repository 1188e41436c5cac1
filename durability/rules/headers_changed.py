"""Rule 20 for headers: a record has other headers than it was sent with, or the same in another order."""

from holdfast.durability.rules.changed import changed, of_checksums

RULE = changed(
    name="headers_changed",
    meaning="other headers than it was sent with",
    false_alarm="a program between producer and cluster adds headers",
    differs="headers_differ",
    detail=of_checksums("headers_crc32c", "headers", "its headers are gone", "its headers"),
)
