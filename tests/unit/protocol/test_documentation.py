"""docs/protocol.md is what the schemas say (D3)."""

from holdfast.metadata.records import RECORD_CLASSES
from holdfast.metadata.snapshot_records import SNAPSHOT_RECORD_CLASSES
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import APIS
from holdfast.protocol.schema.documentation import render
from holdfast.protocol.schema.fields import schema_of
from holdfast.tools.protocol_docs import PAGE

ALL = RECORD_CLASSES | SNAPSHOT_RECORD_CLASSES


def test_the_page_in_docs_is_up_to_date() -> None:
    assert PAGE.read_text() == render(ALL), "run `python -m holdfast.tools.protocol_docs`"


def test_the_page_names_every_api_field_record_and_error() -> None:
    page = render(RECORD_CLASSES | SNAPSHOT_RECORD_CLASSES)
    for api in APIS.values():
        for cls in (api.request, api.response):
            assert f"**{cls.__name__}**" in page
            for spec in schema_of(cls):
                assert f"| `{spec.name}` | {spec.type.name} |" in page
    for key, record in ALL.items():
        assert f"### {record.__name__} ({key})" in page
    for code in ErrorCode:
        assert f"| {int(code)} | {code.name} |" in page
