"""docs/protocol.md is what the schemas say (D3)."""

from cli.protocol_docs import PAGE
from metadata.records import RECORD_CLASSES
from protocol.documentation import render
from protocol.errors import ErrorCode
from protocol.messages import APIS
from protocol.schema import schema_of


def test_the_page_in_docs_is_up_to_date() -> None:
    assert PAGE.read_text() == render(RECORD_CLASSES), "run `python -m cli.protocol_docs`"


def test_the_page_names_every_api_field_record_and_error() -> None:
    page = render(RECORD_CLASSES)
    for api in APIS.values():
        for cls in (api.request, api.response):
            assert f"**{cls.__name__}**" in page
            for spec in schema_of(cls):
                assert f"| `{spec.name}` | {spec.type.name} |" in page
    for key, record in RECORD_CLASSES.items():
        assert f"### {record.__name__} ({key})" in page
    for code in ErrorCode:
        assert f"| {int(code)} | {code.name} |" in page
