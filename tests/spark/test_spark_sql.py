"""The command `spark-sql`: topics as tables, with nothing but the package installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from broker_process import Broker
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program

SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 240


def spark_sql(place: Path, text: str) -> list[list[str]]:
    """The rows of all queries."""
    require_program("java")
    (place / "queries.sql").write_text(text)
    java = f"-Dderby.system.home={place} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(place / "warehouse")}
    settings |= {"spark.sql.catalogImplementation": "in-memory", "spark.driver.host": "127.0.0.1"}
    line = [str(SPARK_HOME / "bin" / "spark-sql"), "--master", "local[2]", "--driver-java-options", java]
    line += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*line, "-f", str(place / "queries.sql")],
        env={**environment, "PYSPARK_PYTHON": sys.executable},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return [row.split("\t") for row in done.stdout.splitlines() if row]


def test_tables(shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path) -> None:
    for name in ("sql-one", "sql-two"):
        kafka.create_topic(name, partitions=2)
    kafka.produce("sql-one", [Sent(b"%d" % i, b"k", (("h", b"x"),), partition=i % 2) for i in range(10)])
    server = f"'kafka.bootstrap.servers' = '{shared_broker.bootstrap}'"
    rows = spark_sql(
        tmp_path,
        f"""CREATE TABLE one USING cairnmq OPTIONS ({server}, subscribe = 'sql-one', includeHeaders = 'true');
        SELECT 'all', count(*), sum(size(headers)) FROM one;
        SELECT 'some', count(*), 0 FROM one WITH ('startingOffsets' = '{{"sql-one":{{"0":3,"1":5}}}}');
        INSERT INTO one WITH ({server}, 'topic' = 'sql-two')
            SELECT key, value, topic, partition, offset, timestamp, timestampType, headers FROM one;
        CREATE TEMPORARY VIEW two USING cairnmq OPTIONS ({server}, subscribe = 'sql-two');
        SELECT 'copied', count(*), 0 FROM two;
        """,
    )
    assert rows == [["all", "10", "10"], ["some", "2", "0"], ["copied", "10", "0"]]
