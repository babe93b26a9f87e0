"""A Spark cluster on this machine, to try out what runs on a real one.

    python -m ordercast.spark.clusters              a standalone master and two workers
    python -m ordercast.spark.clusters --connect    a Spark Connect server

prints the URL for `--master`, and ends with Ctrl-C. pip's Spark has no start scripts, but the
programs that they start are there. Everything listens on loopback, and is ended with the block that
started it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import UnreachableError, UsageError
from ordercast.spark import java
from ordercast.spark.session import LOOPBACK, is_reachable, quiet_environment

START_SECONDS = 120
STOP_SECONDS = 20
POLL_SECONDS = 0.1
MOST_WORKERS = 64

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"

Program = subprocess.Popen[bytes]


class Cluster(NamedTuple):
    url: str
    programs: list[Program]  # the master or the server first, then workers


@contextmanager
def standalone(workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """A master and workers for the time of the block."""
    if not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"a cluster here has 1 to {MOST_WORKERS} workers, and not {workers}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ordercast-")))
        url = f"spark://{LOOPBACK}:{(port := _free_port())}"
        place = ["--host", LOOPBACK, "--webui-port", "0"]
        master = stack.enter_context(_program(folder, _MASTER, *place, "--port", str(port)))
        _wait(url, master, folder)
        size = ["--cores", str(cores), "--memory", memory]
        programs = [
            stack.enter_context(
                _program(folder, _WORKER, *place, *size, "--work-dir", str(folder), url)
            )
            for _ in range(workers)
        ]
        yield Cluster(url, [master, *programs])


@contextmanager
def connect_server(master: str = "local[2,4]") -> Iterator[Cluster]:
    """A Spark Connect server with a session of its own, for the time of the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ordercast-")))
        url = f"sc://{LOOPBACK}:{(port := _free_port())}"
        settings = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.driver.host": LOOPBACK,
            "spark.sql.shuffle.partitions": "8",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        given = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        server = stack.enter_context(
            _program(
                folder, _SUBMIT, "--master", master, *given, "--class", _CONNECT, "spark-internal"
            )
        )
        _wait(url, server, folder)
        yield Cluster(url, [server])


@contextmanager
def _program(folder: Path, *command: str) -> Iterator[Program]:
    """One of Spark's programs; the JVM itself, as its scripts give way to it."""
    try:
        home = Path(next(iter(import_module("pyspark").__path__)))
    except ImportError as error:
        raise UsageError('this needs Spark: pip install "ordercast[spark]"') from error
    cache = java.cache_folder()
    chosen = java.find_java(cache)
    wanted = quiet_environment(cache, chosen, level="warn")
    flags = java.startup_flags(chosen, home)
    options = " ".join([wanted["SPARK_SUBMIT_OPTS"], *flags])
    environment = {
        **os.environ,
        **wanted,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_SUBMIT_OPTS": options,
        "SPARK_DAEMON_JAVA_OPTS": options,
    }
    with (folder / "log").open("ab") as log:
        program = subprocess.Popen(
            [home / "bin" / "spark-class", *command],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield program
    finally:
        _end(program)


def _end(program: Program) -> None:
    program.terminate()
    try:
        program.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def _wait(url: str, program: Program, folder: Path) -> None:
    limit = time.monotonic() + START_SECONDS
    while not is_reachable(url):
        if program.poll() is not None or time.monotonic() > limit:
            lines = (folder / "log").read_text(errors="replace").strip().splitlines()
            raise UnreachableError(f"{url} did not start: {' '.join(lines[-1:])[:300]}")
        time.sleep(POLL_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A Spark cluster on this machine, until Ctrl-C.")
    parser.add_argument("--connect", action="store_true", help="a Spark Connect server instead")
    parser.add_argument("--workers", type=int, default=2, help="(2)")
    parser.add_argument("--cores", type=int, default=1, help="of each worker (1)")
    chosen = parser.parse_args(arguments)
    made = connect_server() if chosen.connect else standalone(chosen.workers, chosen.cores)
    with made as cluster, suppress(KeyboardInterrupt):
        print(cluster.url, flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
