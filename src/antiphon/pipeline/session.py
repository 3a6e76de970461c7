"""Start or join Spark, run tasks on it, show their progress and turn their errors into one line."""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.errors import AntiphonError, NotATrace, UsageError
from antiphon.pipeline.interrupts import Interrupts
from antiphon.pipeline.java import find_java_home
from antiphon.pipeline.store.location import remove_tree, use_settings
from antiphon.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Work = Callable[[int], bytes]
FrameWork = Callable[["Iterable[pa.RecordBatch]"], bytes]
Task = Callable[["Iterable[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the driver that it starts

# Fit for a laptop: the JVM only hands out descriptions of work, so the memory belongs to the Python workers.
_LAPTOP: dict[str, bool | float | int | str | None] = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    # Workers keep what they free of arrays that are not very large: the kernel clears every page that it hands out.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
_S3A = ("access.key", "secret.key", "session.token", "endpoint", "endpoint.region", "aws.credentials.provider")
_ALWAYS: dict[str, bool | float | int | str | None] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.artifact.isolation.enabled": "false",  # an isolated session would start its own Python workers
}


class Session:
    """A SparkSession, and the one way in which the pipeline uses it: numbered tasks, each returning a few bytes."""

    def __init__(self, spark: SparkSession, *, owned: bool = False, name: str = "antiphon") -> None:
        self.spark = spark
        self.owned = owned
        self.name = name  # of the job group: what Spark's UI shows beside each job
        self.interrupts = Interrupts()
        self.storage = _storage_settings(spark)
        use_settings(self.storage)
        self.jobs = 0  # what a check costs in Spark jobs is part of its contract with its tests

    @property
    def parallelism(self) -> int:
        """How many tasks run at once, as far as Spark says."""
        if _is_connect(self.spark):
            return int(self.spark.conf.get("spark.default.parallelism", "") or os.cpu_count() or 2)
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def is_local(self) -> bool:
        """Whether all workers are processes of this machine, which see the files that it sees."""
        if _is_connect(self.spark):
            return "SPARK_LOCAL_REMOTE" in os.environ  # set by Spark where it has started the server itself
        return _is_local_master(str(self.spark.sparkContext.master))

    def each(self, tasks: int, work: Work, label: str) -> list[bytes]:
        """Run `work(0)` ... `work(tasks - 1)` as one Spark job; their results come in no particular order."""
        if tasks == 0:
            return []
        return self._collect(lambda: self.spark.range(0, tasks, 1, tasks), _numbered(work), label)

    def over(self, frame: DataFrame, work: FrameWork, label: str) -> list[bytes]:
        """Run `work` over the batches of each partition of a DataFrame, as one Spark job besides its own shuffles."""
        return self._collect(lambda: frame, _partition(work), label)

    def _collect(self, frame: Callable[[], DataFrame], task: Task, label: str) -> list[bytes]:
        self.jobs += 1

        def collect() -> list[bytes]:
            results: list[bytes] = frame().mapInArrow(task, "result binary").toArrow()["result"].to_pylist()
            return results

        task = _with_settings(task, self.storage)
        with _progress(self.spark, label), one_line_errors():
            return self._interruptible(collect, label)

    def _interruptible(self, action: Callable[[], list[bytes]], label: str) -> list[bytes]:
        """Run an action in another thread: Ctrl-C must not tear the conversation with the JVM in the middle.

        Its jobs carry a tag, by which they alone are cancelled: others may be at work in a session that was joined.
        """
        from pyspark import InheritableThread

        outcome: list[list[bytes]] = []
        failure: list[BaseException] = []
        tag = f"antiphon-{uuid.uuid4().hex[:12]}"

        def run() -> None:
            try:
                self._tag(tag, label)
                outcome.append(action())
            except BaseException as error:
                failure.append(error)

        thread = InheritableThread(target=run, daemon=True, session=self.spark)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.5)
                self.interrupts.check()
        except KeyboardInterrupt:
            self._cancel(tag)
            thread.join(10)
            raise
        if failure:
            raise failure[0]
        return outcome[0]

    def _tag(self, tag: str, label: str) -> None:
        """Mark the jobs that this thread starts."""
        if _is_connect(self.spark):
            self.spark.addTag(tag)
        else:
            self.spark.sparkContext.addJobTag(tag)
            self.spark.sparkContext.setLocalProperty("spark.jobGroup.id", self.name)
            self.spark.sparkContext.setLocalProperty("spark.job.description", f"{self.name}: {label}")

    def _cancel(self, tag: str) -> None:
        if _is_connect(self.spark):
            self.spark.interruptTag(tag)
        else:
            self.spark.sparkContext.cancelJobsWithTag(tag)

    def stop(self) -> None:
        """Stop Spark if this process started it."""
        if self.owned:
            self.spark.stop()


@contextmanager
def running_session(
    master: str | None = None, conf: Sequence[str] = (), *, name: str = "antiphon", quiet: bool = True
) -> Iterator[Session]:
    """Open a session for a while; stopped at the end if it was started here."""
    with Interrupts() as interrupts, _without_logs_of_py4j() if quiet else nullcontext():
        opened = open_session(master, conf, name=name, quiet=quiet)
        opened.name = name
        opened.interrupts = interrupts
        try:
            yield opened
        finally:
            opened.stop()


@contextmanager
def _without_logs_of_py4j() -> Iterator[None]:
    """Py4J logs tracebacks, under its own name and as the root, when Ctrl-C comes in the middle of a call."""
    root, own = logging.getLogger(), logging.getLogger("py4j")
    propagated = own.propagate
    root.addFilter(_is_not_of_py4j)
    own.addHandler(nowhere := logging.NullHandler())
    own.propagate = False
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_py4j)
        own.removeHandler(nowhere)
        own.propagate = propagated


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def open_session(
    master: str | None = None, conf: Sequence[str] = (), *, name: str = "antiphon", quiet: bool = True
) -> Session:
    """Join the Spark that is there (an active session, spark-submit, SPARK_REMOTE), else start one."""
    settings = _settings(conf)
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError("this command needs Spark: pip install 'antiphon[spark]'") from None
    # Not the user's matter. For good, not for a while: the filters of a process belong to all its threads.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # A session is active in a thread of the JVM. Where Ctrl-C has cut the conversation with it, ours is another.
        active = SparkSession.builder.getOrCreate()
    if active is not None:
        return join_session(active)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    where = master or os.environ.get("SPARK_REMOTE") or ("spark-submit" if _SUBMITTED in os.environ else "local[*]")
    if where.startswith("sc://") or (not master and "SPARK_REMOTE" in os.environ):
        if where.startswith("local"):  # Spark Connect with a server of its own on this machine
            os.environ["JAVA_HOME"] = str(find_java_home())
        builder = builder.remote(where)
    elif _SUBMITTED in os.environ and not master:
        builder = builder.config(map=_ALWAYS)  # where and how to run has been decided
    else:
        os.environ["JAVA_HOME"] = str(find_java_home())
        local = where.startswith("local")
        if local or "127.0.0.1" in where:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(where).config(map={**(_LAPTOP if local else {}), **_ALWAYS})
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _silenced(quiet), _startup_errors(where), _own_interrupts(), no_orphans():
        spark = builder.getOrCreate()
        if not _is_connect(spark):
            spark.sparkContext.setLogLevel("OFF" if quiet else "WARN")
        _send_package(spark)
    return Session(spark, owned=True)


def join_session(spark: SparkSession) -> Session:
    """Use a session that somebody else has started, and will stop."""
    _send_package(spark)
    return Session(spark)


_sent: set[str] = set()  # the applications whose workers have this package


def _send_package(spark: SparkSession) -> None:
    """Send this package to workers that may be on other machines, once."""
    session = Session(spark)
    if session.is_local:
        return
    application = str(getattr(spark, "session_id", None) or spark.sparkContext.applicationId)
    if application not in _sent:
        spark.addArtifacts(str(_package_archive()), pyfile=True)
        _sent.add(application)


def on_cluster(master: str | None) -> bool:
    """Say, before a session is opened, whether its workers may not see this machine's files."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        return not _is_local_master(str(active.master))
    if master is None and _SUBMITTED in os.environ:
        return True  # where to is known to spark-submit
    return not (master or os.environ.get("SPARK_REMOTE") or "local").startswith("local")


def _is_local_master(master: str) -> bool:
    return master.partition("[")[0] == "local"


def _settings(conf: Iterable[str]) -> dict[str, str]:
    settings = {}
    for item in conf:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--conf {item}: expected KEY=VALUE, for example spark.driver.memory=2g")
        settings[key.strip()] = value.strip()
    return settings


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _package_archive() -> Path:
    """This package as a zip, for workers that do not have it installed: its modules, and the files that they read.

    Spark's driver hands it out for as long as it lives: it goes when the process ends.
    """
    import antiphon

    root = Path(antiphon.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="antiphon-"))
    atexit.register(remove_tree, folder)
    archive = folder / "antiphon.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for source in sorted(root.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                out.write(source, source.relative_to(root.parent))
    return archive


def _with_settings(task: Task, settings: dict[str, str]) -> Task:
    """Let a task reach stores as the driver does."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        use_settings(settings)
        yield from task(batches)

    return run


def storage_settings(conf: Iterable[str]) -> dict[str, str]:
    """Return what the Spark settings of a command line say of stores."""
    return _of_stores(_settings(conf))


def _of_stores(settings: dict[str, str]) -> dict[str, str]:
    prefix = "spark.hadoop."
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(f"{prefix}fs.")}


def _storage_settings(spark: SparkSession) -> dict[str, str]:
    """What Spark's configuration, and on a classic driver Hadoop's own files, say of stores."""
    if _is_connect(spark):
        return _of_stores(dict(spark.conf.getAll))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    found = {f"fs.s3a.{name}": hadoop.get(f"fs.s3a.{name}") for name in _S3A}
    configured = _of_stores(dict(spark.sparkContext.getConf().getAll()))
    return {**{key: value for key, value in found.items() if value}, **configured}


def _numbered(work: Work) -> Task:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        pa.set_cpu_count(1)  # Spark already runs one task a core
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"result": pa.array([work(number)], pa.binary())})

    return run


def _partition(work: FrameWork) -> Task:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        pa.set_cpu_count(1)
        yield pa.RecordBatch.from_pydict({"result": pa.array([work(batches)], pa.binary())})

    return run


@contextmanager
def _silenced(quiet: bool) -> Iterator[None]:
    """Give the JVM that starts meanwhile another stderr than ours; it keeps it for its life."""
    if not quiet:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(ours, 2)
            os.close(ours)


@contextmanager
def no_orphans() -> Iterator[None]:
    """End processes that were begun here if it is interrupted: a JVM that is still starting would never end.

    It says where it listens in a file, whose folder has gone by then, and waits for somebody to come.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for process in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise


def _children() -> set[int]:
    """The processes that this one has started, where the system tells."""
    listed = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(process) for text in listed for process in text.split()}


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our handling of Ctrl-C: PySpark's own would talk to the JVM in the middle of another conversation."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _startup_errors(where: str) -> Iterator[None]:
    try:
        yield
    except AntiphonError:
        raise
    except ImportError as error:
        raise UsageError(f"{where}: Spark Connect needs pip install 'pyspark[connect]' ({error})") from error
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(f"cannot start Spark on {where}: {first[0]}") from error


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what a task raised, which Spark wraps in pages of traceback, into the one line that it said."""
    try:
        yield
    except AntiphonError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
            raise
        raise _culprit(str(error)) from error


_OURS: dict[str, type[UsageError]] = {kind.__name__: kind for kind in (UsageError, NotATrace)}


def _culprit(text: str) -> UsageError:
    """Return the error that a task raised, as far as Spark's text has it."""
    raised = re.findall(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|NotATrace)): (.+)$", text, flags=re.MULTILINE)
    for kind, message in raised:
        if kind in _OURS:
            return _OURS[kind](message.strip())
    if raised:
        kind, message = raised[0]
        if "No space left" in message:
            return UsageError(f"the disk is full: {message.strip()}")
        remedy = ""
        if kind == "ModuleNotFoundError":
            remedy = f"; set PYSPARK_PYTHON, before Spark starts, to a Python that has it, as {sys.executable} has"
        return UsageError(f"a Spark task failed: {kind}: {message.strip()}{remedy}")
    causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", text, flags=re.MULTILINE)
    reason = (causes[-1:] or text.strip().splitlines() or ["no reason given"])[0].strip()
    return UsageError(f"the disk is full: {reason}" if "No space left" in reason else f"Spark failed: {reason}")


@contextmanager
def _progress(spark: SparkSession, label: str) -> Iterator[None]:
    """A bar on stderr while the block runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    with Progress(label) as bar, _connect_watch(spark, bar) if _is_connect(spark) else _classic_watch(spark, bar):
        yield


@contextmanager
def _classic_watch(spark: SparkSession, bar: Progress) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(0.2):
            done = total = 0
            for job in tracker.getActiveJobsIds():
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    counts = tracker.getStageInfo(stage)
                    if counts:
                        done, total = done + counts.numCompletedTasks, total + counts.numTasks
            bar.done(min(done, total), total or None)  # totals grow while it runs, so done may pass them

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


@contextmanager
def _connect_watch(spark: SparkSession, bar: Progress) -> Iterator[None]:
    def handler(stages: Iterable[object] | None, inflight: int, operation: str | None, done: bool) -> None:
        stages = list(stages or ())
        total = sum(getattr(stage, "num_tasks", 0) for stage in stages)
        bar.done(min(sum(getattr(stage, "num_completed_tasks", 0) for stage in stages), total), total or None)

    spark.registerProgressHandler(handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)  # type: ignore[arg-type]
