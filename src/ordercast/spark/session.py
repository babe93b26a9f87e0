"""From a URL to a quiet, quick Spark session.

    with open_session() as spark: ...                      embedded, in this process
    with open_session("spark://host:7077") as spark: ...   a standalone cluster
    with open_session("sc://host:15002") as spark: ...     over Spark Connect

Embedded is `local[*,4]`: all cores, and a task that fails is tried four times, which plain
`local[*]` does not do. Everything that Spark would print is off. What is embedded listens on
loopback only; with a cluster, on the address by which this machine reaches it.

`python -m ordercast.spark.session` writes the start-up cache of java.py, once and for all.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from ordercast.errors import UnreachableError, UsageError
from ordercast.spark import java

EMBEDDED = "local[*,4]"
TASK_TRIES = 4
REACH_SECONDS = 10
TRAIN_SECONDS = 300
DEFAULT_PORTS = {"spark": 7077, "sc": 15002, "k8s": 443}
YARN_PORT = 8032
KNOWN = ("local", "spark", "sc", "yarn", "k8s")
LOOPBACK = "127.0.0.1"
CONNECT_RETRIES = 6  # some ten seconds; Spark's own fifteen are ten minutes

_SQL_SETTINGS = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": str(TASK_TRIES),
}
# Spark and Hadoop would try for a quarter of an hour to find one of these that does not answer.
_IMPATIENT = {
    "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms": "10000",
    "spark.hadoop.yarn.resourcemanager.connect.retry-interval.ms": "2000",
    "spark.hadoop.ipc.client.connect.max.retries": "2",
}
# The gateway tells how to change the level of its log unless it has that of all.
_QUIET = """rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = spark: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""


@contextmanager
def open_session(url: str = EMBEDDED, *, light: bool = False, **settings: str) -> Iterator[Any]:
    """A session for the time of the block. One that this process has already is used, and stays.

    `light`: it will move rows to and from Python and do little SQL, so that Java need not spend
    its first seconds on fast code. It counts for the first session of a process.

    UsageError: the URL makes no sense, or Spark or Java cannot be had. UnreachableError: nobody
    answers there.
    """
    kind = _kind(url)
    try:
        sql = import_module("pyspark.sql")
    except ImportError as error:
        raise UsageError('this needs Spark: pip install "ordercast[spark]"') from error
    address: str | None = None
    if kind == "yarn":
        address = _reach_yarn()
    elif kind in DEFAULT_PORTS:
        address = _reach(url, kind)
    builder = sql.SparkSession.builder.appName("ordercast")
    if kind == "sc":
        yield from _run(_configured(builder.remote(url), {**_SQL_SETTINGS, **settings}), url)
        return
    # These two log every failed try with where in the code it was; the sentence is ours to say.
    level = "off" if kind in ("yarn", "k8s") else "error"
    with _environment(LOOPBACK if kind == "local" else address, level) as options:
        if light:
            options.append("-XX:TieredStopAtLevel=1")
        chosen = {
            **_SETTINGS,
            **_SQL_SETTINGS,
            **(_IMPATIENT if kind == "yarn" else {}),
            **_listening(LOOPBACK if kind == "local" else address),
            **settings,
        }
        more = chosen.get("spark.driver.extraJavaOptions", "")
        chosen["spark.driver.extraJavaOptions"] = " ".join([*options, more])
        yield from _run(_configured(builder.master(with_retries(url)), chosen), url)


def _configured(builder: Any, settings: dict[str, str]) -> Any:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _run(builder: Any, url: str) -> Iterator[Any]:
    sql = import_module("pyspark.sql")
    active = None if url.startswith("sc:") else sql.SparkSession.getActiveSession()
    if active is not None and (clash := clash_of(active.sparkContext.master, url)):
        raise UsageError(clash)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if url.startswith("local"):
            raise UsageError(f"Spark does not start here: {first_line(error)}") from error
        raise UnreachableError(f"no Spark session at {url}: {first_line(error)}") from error
    if url.startswith("sc:"):
        policy = import_module("pyspark.sql.connect.client.retries").DefaultPolicy
        spark.client.set_retry_policies([policy(max_retries=CONNECT_RETRIES, max_backoff=4000)])
    try:
        yield spark
    finally:
        with suppress(Exception):  # it is gone already, and why was told where it mattered
            if active is None:
                spark.stop()


def clash_of(master: str, url: str) -> str:
    """Why a session at one place cannot stand for one at another; "": it can. Embedded is wherever
    the process runs its jobs already."""
    if _kind(url) == "local" or master == url:
        return ""
    return f"this process has a Spark session at {master} already, not at {url}: stop it first"


def _kind(url: str) -> str:
    kind = "local" if re.fullmatch(r"local(\[.+\])?", url) else url.partition(":")[0]
    if kind not in KNOWN or (kind == "local" and not re.fullmatch(_LOCAL, url)):
        raise UsageError(
            f"--master {url}: write local[2], spark://host:port, sc://host:port, yarn or k8s://..."
        )
    return kind


_LOCAL = r"local(\[(\d+|\*)(,\d+)?\])?"


def with_retries(url: str) -> str:
    """`local[2]` would fail a whole sweep with one task."""
    found = re.fullmatch(_LOCAL, url)
    return f"local[{found[2] or 1},{TASK_TRIES}]" if found and not found[3] else url


def _listening(address: str | None) -> dict[str, str]:
    """Where executors find us, and who can."""
    if address is None:
        return {}
    return {"spark.driver.host": address, "spark.driver.bindAddress": address}


def _reach(url: str, kind: str) -> str:
    """Our address on the way there. Spark tries for minutes before it says that nobody is there."""
    inner = url.partition("://")[2] if kind == "k8s" else ""
    place = urlsplit(inner if "://" in inner else url.partition(";")[0])
    try:
        port = place.port or DEFAULT_PORTS[kind]
    except ValueError as error:
        raise UsageError(f"--master {url}: {error}") from error
    if not place.hostname:
        raise UsageError(f"--master {url}: write {kind}://host:{port}")
    return _way_to(place.hostname, port)


def _way_to(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), REACH_SECONDS) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        why = error.strerror or str(error)
        raise UnreachableError(f"no Spark at {host}:{port}: {why}") from error


def _reach_yarn() -> str:
    """Our address on the way to a resource manager. Hadoop's settings say where there is one."""
    folders = [os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    files = [Path(folder) / "yarn-site.xml" for folder in folders if folder]
    if not files:
        raise UnreachableError(
            "--master yarn: HADOOP_CONF_DIR or YARN_CONF_DIR has to name the folder with the "
            "cluster's settings"
        )
    managers = [manager for file in files for manager in resource_managers(file)]
    told = f"{' and '.join(map(str, files))} name no resource manager"
    for host, port in managers:
        try:
            return _way_to(host, port)
        except UnreachableError as error:
            told = str(error).replace("no Spark", "no YARN")
    raise UnreachableError(f"--master yarn: {told}")


def resource_managers(file: Path) -> list[tuple[str, int]]:
    """Those that a yarn-site.xml names, by address or by host; none if it cannot be read."""
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError):
        return []
    found = {}
    for entry in root.iter("property"):
        name, value = (entry.findtext(part, "").strip() for part in ("name", "value"))
        if "${" not in value:
            found[name] = value
    places: list[tuple[str, int]] = []
    for name, value in found.items():
        for kind in ("address", "hostname"):
            if re.fullmatch(rf"yarn\.resourcemanager\.{kind}(\.\w+)?", name):
                host, _, port = value.partition(":")
                if host and (not port or port.isdecimal()):
                    places.append((host, int(port or YARN_PORT)))
    return places


def is_reachable(url: str) -> bool:
    """Whether somebody listens where a standalone cluster or a Connect server should be."""
    try:
        _reach(url, _kind(url))
    except UnreachableError:
        return False
    return True


def cores_of(spark: Any) -> int:
    """How many tasks of a session run at once."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # over Connect there is no context to ask, but a range is cut by it
        functions = import_module("pyspark.sql.functions")
        parts = spark.range(10_000).select(functions.spark_partition_id()).distinct()
        return max(1, int(parts.count()))


@contextmanager
def _environment(address: str | None, level: str) -> Iterator[list[str]]:
    """What the JVM reads when it starts, and our workers; inside, the JVM's own options."""
    cache = java.cache_folder()
    chosen = java.find_java(cache)
    wanted = {**quiet_environment(cache, chosen, level), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if address is not None:
        wanted["SPARK_LOCAL_IP"] = address
    options = [wanted.pop("SPARK_SUBMIT_OPTS"), *java.startup_flags(chosen, _spark_folder())]
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield options
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def quiet_environment(cache: Path, chosen: java.Java, level: str = "error") -> dict[str, str]:
    """For any of Spark's programs: which Java, which Python, and what is logged."""
    # Spark puts this folder on the class path, and a start-up cache allows no folder there that has
    # anything in it: so the log's settings are beside it.
    settings = cache / "conf"
    settings.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = cache / f"log4j2-{level}.properties"
    text = _QUIET.format(level=level)
    if not log.exists() or log.read_text(encoding="utf-8") != text:
        temporary = log.with_name(f"{log.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(log)
    return {
        "JAVA_HOME": str(chosen.home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(settings),
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={log.as_uri()}",
    }


def first_line(error: Exception) -> str:
    """Why it failed. Where Java says it, what caused all else says most."""
    told, inner = str(error), getattr(error, "java_exception", None)
    while inner is not None:
        told, inner = str(inner.getMessage() or told), inner.getCause()
    lines = told.strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _spark_folder() -> Path:
    return Path(next(iter(import_module("pyspark").__path__)))


# --- the start-up cache ----------------------------------------------------------------------


def write_startup_cache() -> Path:
    """Runs a session of what we do most in a process of its own, which writes down what it saw."""
    cache = java.cache_folder()
    chosen = java.find_java(cache)
    path = java.startup_cache(chosen, _spark_folder())
    java.forget(path)  # Java does not write one while it runs with one
    with tempfile.TemporaryDirectory(dir=chosen.home) as folder:
        written = Path(folder) / path.name
        command = [sys.executable, "-m", __spec__.name, str(written)]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=TRAIN_SECONDS, check=False
        )
        if ran.returncode or not written.exists():
            told = ran.stderr.strip().splitlines() or ["no reason given"]
            raise UsageError(f"Java wrote no start-up cache: {told[-1][:300]}")
        java.seal(written, path)
    return path


def _train(written: Path) -> None:
    """In a process of its own: Java writes its cache when it ends."""
    flags = java.training_flags(java.find_java(java.cache_folder()), written)
    folder = written.parent / "table"
    settings: dict[str, Any] = {"spark.driver.extraJavaOptions": " ".join(flags)}
    with open_session("local[1]", **settings) as spark:
        gateway = spark.sparkContext._gateway
        rows = [(number, f"n{number % 3}") for number in range(100)]
        frame = spark.createDataFrame(rows, "number long, name string").repartition(2)
        frame.mapInArrow(_same, "number long, name string").write.parquet(str(folder))
        spark.read.parquet(str(folder)).createOrReplaceTempView("rows")
        spark.sql(
            "select name, count(*), max(last) from (select name, max(number) over (partition by"
            " name order by number rows between unbounded preceding and 1 preceding) as last"
            " from rows) group by name order by name"
        ).collect()
    shutil.rmtree(folder, ignore_errors=True)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(TRAIN_SECONDS)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _train(Path(sys.argv[1]))
    else:
        print(write_startup_cache())
