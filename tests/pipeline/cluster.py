"""A real Spark cluster on loopback: a standalone master and two workers, from the classes that PySpark brings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from antiphon.pipeline.java import find_java_home

# Of these machines none lives for long: they start with little memory, and compile in haste rather than well.
BRIEF_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
BRIEF = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": BRIEF_JVM,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": BRIEF_JVM,
    "spark.ui.enabled": "false",
}

# Mounts an empty file system over a folder, for itself and what it starts; then runs the rest of its arguments.
APART = 'mount -t tmpfs tmpfs "$0" && mkdir -p "$0/tmp" && export TMPDIR="$0/tmp" && cd "$0/tmp" && exec "$@"'


class Cluster:
    """The address of the master, and its workers' processes.

    Workers see nothing of `hidden`, where a driver has its files, if this machine lets us: `apart`.
    """

    def __init__(self, folder: Path, hidden: Path | None = None) -> None:
        self.folder = folder
        namespace = ["unshare", "--mount", "--map-root-user", "sh", "-c", APART, str(hidden)]
        self.apart = hidden is not None and subprocess.run([*namespace, "true"], capture_output=True).returncode == 0
        self.port, self.url = free_port(), ""
        self.url = f"spark://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(find_java_home()),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": BRIEF_JVM,
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        web = ["--webui-port", "0"]
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(self.port), *web)
        self._wait_for("master.Master", "started", 1)
        for number in range(2):
            work = folder / f"worker-{number}"
            resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            within = namespace if self.apart else []
            self._start("worker.Worker", "--host", "127.0.0.1", *resources, *web, self.url, within=within)
        self._wait_for("master.Master", "Registering worker", 2)

    def _start(self, name: str, *arguments: str, within: Sequence[str] = ()) -> None:
        log = (self.folder / f"{name}-{len(self.processes)}.log").open("wb")
        command = [
            *within,
            f"{self.environment['SPARK_HOME']}/bin/spark-class",
            f"org.apache.spark.deploy.{name}",
            *arguments,
        ]
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

    def seen_by(self, number: int, folder: Path) -> list[str]:
        """Return what a process sees in a folder."""
        return sorted(os.listdir(f"/proc/{self.processes[number].pid}/root{folder}"))

    def kill(self, number: int) -> None:
        """Kill a process and all that it started (a worker's executors), as a power cut would."""
        os.killpg(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].wait()


def in_words(conf: Mapping[str, str]) -> list[str]:
    """Spark's settings as the command line has them."""
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster(folder: Path, hidden: Path | None = None) -> Iterator[Cluster]:
    started = Cluster(folder, hidden)
    try:
        yield started
    finally:
        for number, process in enumerate(started.processes):
            if process.poll() is None:
                started.kill(number)
