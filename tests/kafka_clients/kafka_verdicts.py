"""What test_any_kafka.py lets Spark judge through its own Kafka source; prints {ledger: verdict} as JSON.

python kafka_verdicts.py JARS BOOTSTRAP LEDGER...
"""

import json
import sys

from holdfast.durability.session import start_session, stop_session
from holdfast.durability.validate import ValidateOptions, validate


def main(jars: str, bootstrap: str, ledgers: list[str]) -> None:
    spark = start_session("local[2]", is_short=True, more={"spark.jars": jars})
    found = {}
    for ledger in ledgers:
        options = ValidateOptions(ledger, bootstrap, is_foreign=True, is_kafka=True)
        verdict = validate(spark, options)
        counts = {name: count for name, count in verdict.counts.items() if count}
        found[ledger] = {"code": verdict.exit_code, "counts": counts, "said": verdict.as_text()}
    stop_session(spark)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
