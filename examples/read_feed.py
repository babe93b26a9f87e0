"""Takes the messages of a feed into a table of Parquet files, each of them exactly once.

    python examples/read_feed.py LOG TABLE

LOG is the folder of a feed's log, at a node that may be running. Each run of this program adds what
is new, and prints how many messages of each node TABLE has. It may be killed at any time. Needs
`pip install "ordercast[spark]"`.
"""

import sys
from pathlib import Path

from ordercast.spark.session import open_session
from ordercast.spark.stream import register


def take_new(spark, log, table):
    register(spark)
    feed = spark.readStream.format("ordercast").option("onGap", "report").load(str(log))
    query = (
        feed.writeStream.format("parquet")
        .option("path", str(table / "rows"))
        .option("checkpointLocation", str(table / "checkpoint"))
        .trigger(availableNow=True)  # without this line it follows the feed
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(table / "rows"))
    return {
        (row["kind"], row["origin"]): row["count"]
        for row in rows.groupBy("kind", "origin").count().collect()
    }


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/read_feed.py LOG TABLE")
    with open_session(light=True) as spark:
        counts = take_new(spark, Path(sys.argv[1]), Path(sys.argv[2]))
    for (kind, origin), count in sorted(counts.items(), key=str):
        print(f"{kind} {origin or ''}: {count}")
