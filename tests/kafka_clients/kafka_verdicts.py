"""What tests let Spark judge through its own Kafka source; prints {name: verdict} as JSON.

python kafka_verdicts.py JARS ASKED, the latter JSON: {name: {ledger, servers, properties}}
"""

import json
import sys
from typing import Any

from holdfast.durability.session import start_session, stop_session
from holdfast.durability.validate import ValidateOptions, validate


def main(jars: str, asked: dict[str, dict[str, Any]]) -> None:
    spark = start_session("local[2]", is_short=True, more={"spark.jars": jars})
    found = {}
    for name, given in asked.items():
        options = ValidateOptions(
            given["ledger"],
            given["servers"],
            is_foreign=True,
            is_kafka=True,
            kafka_properties=given.get("properties", {}),
            timeout_ms=given.get("timeout_ms", 60_000),
        )
        verdict = validate(spark, options)
        counts = {name: count for name, count in verdict.counts.items() if count}
        found[name] = {"code": verdict.exit_code, "counts": counts, "said": verdict.as_text()}
        if verdict.facts:
            found[name]["plan"] = spark.table("records")._jdf.queryExecution().toString()
    stop_session(spark)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
