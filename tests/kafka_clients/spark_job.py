"""What test_spark_connector.py lets Spark do; prints what it found as one line of JSON.

python spark_job.py JARS BOOTSTRAP TOPIC COPY ROWS FOLDER
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

STREAM_S = 120


class Job:
    """One session, and the ways to read and write a topic."""

    def __init__(self, jars: str, bootstrap: str, folder: str) -> None:
        builder = SparkSession.builder.master("local[2]")
        settings = {
            "spark.jars": jars,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark: Any = builder.getOrCreate()
        self.folder = Path(folder)
        self._bootstrap = bootstrap

    def write(self, topic: str, rows: int) -> None:
        numbers = self.spark.range(rows).selectExpr("cast(id as string) key", "cast(id as string) value")
        self._to(numbers.write.format("kafka"), topic).save()

    def read(self, topic: str, **options: str) -> list[str]:
        """Values of a batch."""
        options = {"startingOffsets": "earliest", **options}
        rows = self._from(self.spark.read.format("kafka"), topic, options).load()
        return [row.value for row in rows.selectExpr("cast(value as string) value").collect()]

    def available_now(self, topic: str) -> int:
        """Rows in a folder after a stream has taken what is there now; it goes on where it ended."""
        stream = self._stream(topic).selectExpr("cast(value as string) value")
        writer = stream.writeStream.format("parquet").option("path", str(self.folder / "rows"))
        query = (
            writer.option("checkpointLocation", str(self.folder / "now")).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(STREAM_S), "the stream does not end"
        return int(self.spark.read.parquet(str(self.folder / "rows")).count())

    def copy(self, topic: str, copy: str, rows: int) -> tuple[int, int]:
        """A stream from topic to topic, until all is copied: (rows processed, rows in the copy)."""
        writer = self._to(self._stream(topic).writeStream.format("kafka"), copy)
        query = writer.option("checkpointLocation", str(self.folder / "copy")).start()
        deadline_s = time.monotonic() + STREAM_S
        while sum(one["numInputRows"] for one in query.recentProgress) < rows:
            assert time.monotonic() < deadline_s, query.lastProgress
            query.processAllAvailable()
        query.stop()
        return sum(one["numInputRows"] for one in query.recentProgress), len(self.read(copy))

    def _stream(self, topic: str) -> Any:
        return self._from(
            self.spark.readStream.format("kafka"), topic, {"startingOffsets": "earliest"}
        ).load()

    def _from(self, reader: Any, topic: str, options: dict[str, str]) -> Any:
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", topic)
        return reader.options(**options)

    def _to(self, writer: Any, topic: str) -> Any:
        return writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic)


def main(jars: str, bootstrap: str, topic: str, copy: str, rows: int, folder: str) -> None:
    job = Job(jars, bootstrap, folder)
    job.write(topic, rows)
    found: dict[str, Any] = {"batch": job.read(topic)}
    whole = json.dumps({topic: {"0": -2, "1": -2, "2": -2}})
    ends = json.dumps({topic: {"0": -1, "1": -1, "2": -1}})
    found["by_offset"] = job.read(topic, startingOffsets=whole, endingOffsets=ends)
    found["by_time"] = len(job.read(topic, startingTimestamp="0"))
    found["available_now"] = job.available_now(topic)
    found["available_now_again"] = job.available_now(topic)
    job.write(topic, rows)
    found["available_now_after_more"] = job.available_now(topic)
    found["stream"], found["copied"] = job.copy(topic, copy, 2 * rows)
    print(json.dumps(found))
    job.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
