"""Ids as Kafka writes them."""

from holdfast.protocol.id_text import decode_id, encode_id

ID = bytes(range(0xF0, 0x100))


def test_ids_are_printed_as_kafka_prints_them() -> None:
    assert encode_id(ID) == "8PHy8_T19vf4-fr7_P3-_w"
    assert decode_id(encode_id(ID)) == ID
    for text in ("", "short", "8PHy8_T19vf4-fr7_P3-_w==", "8PHy8_T19vf4-fr7_P3-_!", "é" * 22):
        assert decode_id(text) is None
