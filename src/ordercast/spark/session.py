"""From a URL to a quiet, quick Spark session.

    with open_session() as spark: ...                      embedded, in this process
    with open_session("spark://host:7077") as spark: ...   a standalone cluster
    with open_session("sc://host:15002") as spark: ...     over Spark Connect

Embedded is `local[*,4]`: all cores, and a task that fails is tried four times, which plain
`local[*]` does not do. Everything that Spark would print is off, and it listens on loopback only.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ordercast.errors import UnreachableError, UsageError
from ordercast.spark.java import find_java

EMBEDDED = "local[*,4]"
REACH_SECONDS = 10
DEFAULT_PORTS = {"spark": 7077, "sc": 15002}
KNOWN = ("local", "spark", "sc", "yarn", "k8s")

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.task.maxFailures": "4",
}
_QUIET = """rootLogger.level = error
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = spark: %m%n
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = error
"""


@contextmanager
def open_session(url: str = EMBEDDED, **settings: str) -> Iterator[Any]:
    """A session for the time of the block.

    UsageError: the URL makes no sense, or Spark or Java cannot be had. UnreachableError: nobody
    answers there.
    """
    kind = _kind(url)
    try:
        sql = import_module("pyspark.sql")
    except ImportError as error:
        raise UsageError('this needs Spark: pip install "ordercast[spark]"') from error
    if kind in DEFAULT_PORTS:
        _reach(url, kind)
    builder = sql.SparkSession.builder.appName("ordercast")
    if kind == "sc":
        builder = builder.remote(url)
    else:
        with _environment():
            builder = builder.master(url)
            for key, value in {**_SETTINGS, **_local(kind), **settings}.items():
                builder = builder.config(key, value)
            yield from _run(builder, url)
        return
    yield from _run(builder, url)


def _run(builder: Any, url: str) -> Iterator[Any]:
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise UnreachableError(f"no Spark session at {url}: {_first_line(error)}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _kind(url: str) -> str:
    kind = "local" if url.startswith("local") else url.partition(":")[0]
    if kind not in KNOWN:
        raise UsageError(
            f"--master {url}: write local[2], spark://host:port, sc://host:port, yarn or k8s://..."
        )
    return kind


def _local(kind: str) -> dict[str, str]:
    """Where nothing is to be reached from elsewhere, nothing listens there."""
    if kind == "local":
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {}


def _reach(url: str, kind: str) -> None:
    """Spark tries for minutes before it says that nobody is there."""
    place = urlsplit(url)
    port = place.port or DEFAULT_PORTS[kind]
    try:
        socket.create_connection((place.hostname or "", port), REACH_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise UnreachableError(f"no Spark at {place.hostname}:{port}: {why}") from error


@contextmanager
def _environment() -> Iterator[None]:
    """What the JVM reads when it starts, and our workers."""
    cache = Path(tempfile.gettempdir()) / f"ordercast-spark-{os.getuid()}"
    settings = cache / "conf"
    settings.mkdir(mode=0o700, parents=True, exist_ok=True)
    (settings / "log4j2.properties").write_text(_QUIET, encoding="utf-8")
    wanted = {
        "JAVA_HOME": str(find_java(cache)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(settings),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
