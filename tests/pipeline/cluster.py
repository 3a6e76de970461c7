"""A real Spark cluster on loopback: a standalone master and two workers, from the classes that PySpark brings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from antiphon.pipeline.java import find_java_home


class Cluster:
    """The address of the master, and its workers' processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.url = free_port(), ""
        self.url = f"spark://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(find_java_home()),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        web = ["--webui-port", "0"]
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(self.port), *web)
        self._wait_for("master.Master", "started", 1)
        for number in range(2):
            work = folder / f"worker-{number}"
            resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            self._start("worker.Worker", "--host", "127.0.0.1", *resources, *web, self.url)
        self._wait_for("master.Master", "Registering worker", 2)

    def _start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}-{len(self.processes)}.log").open("wb")
        command = [f"{self.environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True
        )
        self.processes.append(process)

    def _wait_for(self, name: str, text: str, times: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if sum(log.read_text().count(text) for log in self.folder.glob(f"{name}-*.log")) >= times:
                return
            time.sleep(0.2)
        raise TimeoutError(f"{name} does not say {text!r}")

    def kill(self, number: int) -> None:
        """Kill a process and all that it started (a worker's executors), as a power cut would."""
        os.killpg(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    started = Cluster(folder)
    try:
        yield started
    finally:
        for number, process in enumerate(started.processes):
            if process.poll() is None:
                started.kill(number)
