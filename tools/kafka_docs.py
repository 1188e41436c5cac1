"""`python -m holdfast.tools.kafka_docs` rewrites the tables of docs/kafka.md. For developers."""

import inspect
from pathlib import Path

from kio.schema.errors import ErrorCode as KafkaErrorCode
from kio.schema.index import api_key_map

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.error_codes import kafka_code
from holdfast.kafka_listener.core.translations import TRANSLATIONS
from holdfast.protocol.errors import ErrorCode

PAGE = Path(__file__).resolve().parent.parent / "docs" / "kafka.md"
BEGIN, END = "<!-- generated: {} -->\n", "<!-- end -->"


def main() -> None:
    """Write the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")


def rewritten(text: str) -> str:
    """The page with its tables made anew."""
    for name, table in (("apis", _apis()), ("others", _others()), ("errors", _errors())):
        before, begin, rest = text.partition(BEGIN.format(name))
        assert begin, f"docs/kafka.md has no place for the table {name}"
        _, end, after = rest.partition(END)
        text = f"{before}{begin}{table}\n{end}{after}"
    return text


def _apis() -> str:
    rows = ["| API | key | versions | |", "|---|---|---|---|"]
    for api in sorted(KafkaApi):
        what = (inspect.getdoc(TRANSLATIONS[api]) or "").replace("\n", " ")
        rows.append(f"| {api.title} | {int(api)} | {api.min_version} to {api.max_version} | {what} |")
    return "\n".join(rows)


def _others() -> str:
    served = {int(api) for api in KafkaApi}
    names = sorted(name.title().replace("_", "") for key, name in api_key_map.items() if key not in served)
    return ", ".join(names) + "."


def _errors() -> str:
    rows = ["| Holdfast's error | what a Kafka client gets |", "|---|---|"]
    for code in ErrorCode:
        theirs = KafkaErrorCode(kafka_code(code))
        if theirs.name != code.name.lower():
            rows.append(f"| {code.name} | {theirs.name.upper()} ({theirs.value}) |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
