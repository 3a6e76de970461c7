"""Files and folders by path or URI, wherever they lie: a disk, S3, HDFS, Google's or Azure's store, behind fsspec.

A path on a disk is a `pathlib.Path`; a URI is a `StorePath`, which has those methods of a Path that the pipeline uses.
What differs is done by the functions below: opening for reading, and writing so that a name appears only with the whole
content. An object store shows an object once it is complete; other stores, as HDFS, rename.

Who may do what is said by the environment, as each store's own tools have it, and by Spark's Hadoop settings
(`spark.hadoop.fs.s3a.*`, `spark.hadoop.fs.azure.*`), which `use_settings` is given on the driver and in every task.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fnmatch
import functools
import io
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from antiphon.atomic_write import SUFFIX, Replacement
from antiphon.errors import UsageError
from antiphon.pipeline.store.torn import Tear, TornStream

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs
    import pyarrow.parquet as pq

S3: Final = ("s3", "s3a", "s3n")
OBJECT_STORES: Final = (*S3, "gs", "gcs")  # here an object appears when it is complete, and cannot be renamed
BUILT_IN: Final = ("gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")  # pyarrow knows how to reach these by URI
RETRY_S: Final = 60  # how long Google's store is asked before it counts as out of reach; 15 minutes by itself
BLOCK_BYTES: Final = 8 << 20

_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}  # with which bytes such a file begins

WITHOUT_IT: Final = "write it anew, or leave it out: a name that begins with _ is not read"
_settings: dict[str, str] = {}  # Hadoop's names, such as fs.s3a.endpoint


def use_settings(settings: Mapping[str, str]) -> None:
    """Reach stores with these Hadoop settings from now on, in this process."""
    if settings != _settings:
        _settings.clear()
        _settings.update(settings)
        file_system.cache_clear()


class StorePath:
    """A file or folder in a store, by URI; a Path as far as the pipeline needs one."""

    def __init__(self, scheme: str, authority: str, key: str) -> None:
        self.scheme, self.authority = scheme, authority
        self.key = "/".join(part for part in key.split("/") if part)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{self.key}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: StorePath) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.scheme, self.authority, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The folder; the top's is itself."""
        return StorePath(self.scheme, self.authority, self.key.rpartition("/")[0])

    @property
    def _there(self) -> tuple[pyarrow.fs.FileSystem, str]:
        system, base = file_system(self.scheme, self.authority)
        return system, f"{base.rstrip('/')}/{self.key}" if self.key else base

    def _info(self) -> pyarrow.fs.FileInfo:
        system, path = self._there
        with reaching(self):
            return system.get_file_info(path)

    def exists(self) -> bool:
        """Say whether there is a file or folder."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Say whether there is a file."""
        return bool(self._info().is_file)

    def is_dir(self) -> bool:
        """Say whether there is a folder; in an object store, whether any key begins with it."""
        return str(self._info().type.name) == "Directory"

    def facts(self) -> tuple[int, int]:
        """Return a file's size and the time of its last change, in nanoseconds."""
        found = self._info()
        return int(found.size or 0), int(found.mtime_ns or 0)

    def list(self, *, recursive: bool = False) -> Iterator[tuple[StorePath, bool]]:
        """Yield what is in a folder, in order, and whether it is a file; nothing if there is no such folder."""
        return ((one, bool(info.is_file)) for one, info in self._listed(recursive=recursive))

    def files(self) -> Iterator[tuple[StorePath, int, int]]:
        """Yield the files below a folder, each with its size and the time of its last change, by one listing."""
        for one, info in self._listed(recursive=True):
            if info.is_file:
                yield one, int(info.size or 0), int(info.mtime_ns or 0)

    def _listed(self, *, recursive: bool) -> Iterator[tuple[StorePath, pyarrow.fs.FileInfo]]:
        from pyarrow.fs import FileSelector

        system, path = self._there
        with reaching(self):
            found = system.get_file_info(FileSelector(path, recursive=recursive, allow_not_found=True))
        for one in sorted(found, key=lambda info: info.path):
            yield self / one.path[len(path) :].strip("/"), one

    def iterdir(self) -> Iterator[StorePath]:
        """Yield what is in a folder."""
        return (one for one, _ in self.list())

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Yield the files of a folder whose names match."""
        return (one for one, is_file in self.list() if is_file and fnmatch.fnmatch(one.name, pattern))

    def read_bytes(self) -> bytes:
        """Return a file's content."""
        with open_input(self) as file:
            return bytes(file.read())

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return a file's text."""
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str) -> None:
        """Write a text, whole or not at all."""
        with replacement(self) as fresh:
            fresh.write_text(text)

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: a folder comes with its first file."""

    def unlink(self) -> None:
        """Remove a file."""
        system, path = self._there
        system.delete_file(path)

    def rmtree(self) -> None:
        """Remove a folder and all in it, if it is there."""
        system, path = self._there
        with_files = next(iter(self.list()), None) is not None
        if with_files:
            system.delete_dir(path)

    def open(self) -> pa.NativeFile:
        """Open a file for reading anywhere in it."""
        system, path = self._there
        with reaching(self):
            return system.open_input_file(path)

    def stream(self, codec: str | None) -> pa.NativeFile:
        """Open a file for reading from its beginning, decompressed."""
        system, path = self._there
        with reaching(self):
            return system.open_input_stream(path, compression=codec)

    def upload(self, file: Path) -> None:
        """Put a finished file of this machine there; its name appears only with all of it."""
        system, path = self._there
        if self.scheme in OBJECT_STORES:
            self._fill(system, path, file)
            return
        system.create_dir(path.rpartition("/")[0] or "/", recursive=True)
        folder, _, name = path.rpartition("/")
        unfinished = f"{folder}/.{name}.{uuid.uuid4().hex[:12]}{SUFFIX}"
        self._fill(system, unfinished, file)
        system.move(unfinished, path)

    def _fill(self, system: pyarrow.fs.FileSystem, path: str, file: Path) -> None:
        with file.open("rb") as content, system.open_output_stream(path) as out:
            while block := content.read(BLOCK_BYTES):
                out.write(block)


Location: TypeAlias = Path | StorePath


def location(where: str | os.PathLike[str] | StorePath) -> Location:
    """Return where a path or URI leads."""
    if isinstance(where, StorePath):
        return where
    text = os.fspath(where)
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme.isalnum():
        return Path(text.removeprefix("file:")).absolute()
    if scheme == "file":
        return Path(rest).absolute()
    authority, _, key = rest.partition("/")
    return StorePath(scheme, authority, key)


def is_uri(where: str) -> bool:
    """Say whether a trace, table or folder is named by a URI of a store."""
    return isinstance(location(where), StorePath)


class Upload:
    """A file of a store, written on this machine's disk first; with the interface of `Replacement`.

    What was written here goes with this object at the latest, so that a task that fails half-way leaves nothing.
    """

    def __init__(self, path: StorePath) -> None:
        self.path = path
        descriptor, name = tempfile.mkstemp(prefix="antiphon-", suffix=f"-{path.name}")
        os.close(descriptor)
        self.fresh = Path(name)
        self._gone = weakref.finalize(self, self.fresh.unlink, missing_ok=True)

    def commit(self) -> None:
        """Put what was written in its place."""
        try:
            with reaching(self.path):
                self.path.upload(self.fresh)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what was written here."""
        self._gone()

    def __enter__(self) -> Path:
        return self.fresh

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()


def replacement(path: Location, *, durable: bool = False) -> Replacement | Upload:
    """Return a name on this machine to write to, which takes its place when it is whole."""
    return Upload(path) if isinstance(path, StorePath) else Replacement(path, durable=durable)


def open_input(path: Location) -> pa.NativeFile:
    """Open a file for reading anywhere in it; one on a disk is mapped into memory."""
    import pyarrow as pa

    return path.open() if isinstance(path, StorePath) else pa.memory_map(str(path))


def open_binary(path: Location) -> IO[bytes]:
    """Open a file as Python's own, with lines to iterate over."""
    return io.BufferedReader(path.open()) if isinstance(path, StorePath) else path.open("rb")


def open_stream(path: Location, tear: Tear | None = None) -> pa.NativeFile | TornStream:
    """Open a text for reading from its beginning: decompressed, whatever its name, and as UTF-8.

    With a tear, one that is compressed is read as far as it goes (unless it is in UTF-16).
    """
    import pyarrow as pa

    with open_binary(path) as file:
        compressed = compression_of(file.read(4)) is not None
    with TornStream(lambda: _decompressed(path), Tear()) as stream:
        transcoded = is_utf16(stream.read(2))
    if transcoded:
        return pa.transcoding_input_stream(_decompressed(path), "utf-16", "utf-8")
    return TornStream(lambda: _decompressed(path), tear) if tear is not None and compressed else _decompressed(path)


@contextlib.contextmanager
def damage_named(file: str) -> Iterator[None]:
    """Let the error of a file that is cut short, damaged or out of reach be one line that names it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise
        raise cannot_be_read(file, (str(error).splitlines() or ["no reason"])[0]) from None


def cannot_be_read(file: str, why: str) -> UsageError:
    """Return what is said of a damaged file."""
    return UsageError(f"{file}: cannot be read to its end: {why}; {WITHOUT_IT}")


def is_utf16(first: bytes) -> bool:
    """Say whether a text that begins with these bytes is in UTF-16, as PowerShell writes it."""
    return first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def compression_of(first: bytes) -> str | None:
    """Return how a file is compressed that begins with these bytes, None if it is not."""
    return next((codec for mark, codec in _COMPRESSED.items() if first.startswith(mark)), None)


def _decompressed(path: Location) -> pa.NativeFile:
    import pyarrow as pa

    with open_binary(path) as file:
        codec = compression_of(file.read(4))
    return path.stream(codec) if isinstance(path, StorePath) else pa.input_stream(str(path), compression=codec)


def open_parquet(path: Location, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file."""
    import pyarrow.parquet as pq

    if isinstance(path, StorePath):
        return pq.ParquetFile(path.open(), pre_buffer=True, **options)
    # not mapped into memory: what was read of a large file would count as this process's until it is closed
    return pq.ParquetFile(str(path), **options)


def read_tables(folder: Location, **options: Any) -> list[pa.Table]:
    """Read the Parquet files of a folder, in order of their names."""
    import pyarrow.parquet as pq

    return [
        pq.read_table(open_input(file) if isinstance(file, StorePath) else file, use_threads=False, **options)
        for file in sorted(folder.glob("*.parquet"))
    ]


def files_in(folder: Location, pattern: str) -> list[Location]:
    """List the files of a folder whose names match, in order; none if there is no such folder."""
    if isinstance(folder, StorePath):
        return list(folder.glob(pattern))
    return sorted(folder.glob(pattern))


def facts_of(path: Location) -> tuple[int, int]:
    """Return a file's size and the time of its last change, in nanoseconds."""
    if isinstance(path, StorePath):
        return path.facts()
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def size_of(where: str | Location) -> int:
    """Return the size of a file."""
    return facts_of(location(where))[0]


def write_whole(path: Location, content: bytes, *, durable: bool = True) -> None:
    """Write a file that appears only with the whole content."""
    with replacement(path, durable=durable) as fresh:
        fresh.write_bytes(content)


def remove_file(path: Location) -> None:
    """Remove a file if it is there."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
    elif path.is_file():
        path.unlink()


def remove_tree(path: Location) -> None:
    """Remove a folder and all in it; what cannot be removed stays."""
    if isinstance(path, StorePath):
        try:
            path.rmtree()
        except (OSError, UsageError):
            return
    else:
        shutil.rmtree(path, ignore_errors=True)


def copy_tree(source: Location, target: Location, *, last: str = "") -> None:
    """Copy the files of a folder, at any depth; the one named `last` comes after all others."""
    target.mkdir(parents=True, exist_ok=True)
    files = [file for file in _files(source) if file[1] != last] + [file for file in _files(source) if file[1] == last]
    for file, name in files:
        copy_file(file, target / name)


def copy_file(source: Location, target: Location) -> None:
    """Copy a file; its new name appears only with the whole content."""
    with replacement(target) as fresh, open_input(source) as content, fresh.open("wb") as out:
        while block := content.read(BLOCK_BYTES):
            out.write(block)


def _files(folder: Location) -> list[tuple[Location, str]]:
    """List the files below a folder, each with its name there."""
    if isinstance(folder, StorePath):
        return [(one, one.key[len(folder.key) + 1 :]) for one, is_file in folder.list(recursive=True) if is_file]
    return [(one, str(one.relative_to(folder))) for one in sorted(folder.rglob("*")) if one.is_file()]


@contextlib.contextmanager
def reaching(path: StorePath) -> Iterator[None]:
    """Let the error of a store be one line that names what it was asked for."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except (OSError, pa.ArrowException) as error:  # not all of pyarrow's are OSErrors
        raise UsageError(f"{path}: {(str(error).splitlines() or ['not reachable'])[0]}") from error


@functools.lru_cache(maxsize=64)
def file_system(scheme: str, authority: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it that the URI's own top has."""
    from pyarrow import fs

    where = f"{scheme}://{authority}"
    try:
        if scheme in S3:
            return fs.S3FileSystem(**_s3_options(authority)), authority
        if scheme in ("abfs", "abfss") and (
            key := _settings.get(f"fs.azure.account.key.{authority.partition('@')[2]}")
        ):
            container, _, host = authority.partition("@")
            return fs.AzureFileSystem(host.partition(".")[0], account_key=key), container
        if scheme in BUILT_IN:
            impatient = f"?retry_limit_seconds={RETRY_S}" if scheme in ("gs", "gcs") else ""
            system, base = fs.FileSystem.from_uri(f"{where}/{impatient}")
            return system, base
        import fsspec
    except ImportError:
        raise UsageError(
            f"{where}: stores of this kind need fsspec: pip install fsspec and its package for {scheme}"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{where}: {(str(error).splitlines() or ['not reachable'])[0]}") from None
    try:
        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), f"/{authority}"
    except (ImportError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from None
    except TypeError:  # it wants to be told more than a URI has room for
        raise UsageError(f"{where}: {scheme} cannot be read by a URI alone; copy the files to a disk") from None


def _s3_options(bucket: str) -> dict[str, Any]:
    """Return what Hadoop's settings, those of the bucket first, then the environment say of S3."""

    def setting(name: str) -> str | None:
        return _settings.get(f"fs.s3a.bucket.{bucket}.{name}") or _settings.get(f"fs.s3a.{name}") or None

    options: dict[str, Any] = {}
    if (key := setting("access.key")) and (secret := setting("secret.key")):
        options |= {"access_key": key, "secret_key": secret, "session_token": setting("session.token")}
    elif "Anonymous" in (setting("aws.credentials.provider") or ""):
        options["anonymous"] = True
    endpoint = setting("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = setting("endpoint.region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        options["endpoint_override"] = endpoint
        if "://" not in endpoint:
            options["scheme"] = "http" if setting("connection.ssl.enabled") == "false" else "https"
        region = region or "us-east-1"
    elif not region:
        from pyarrow.fs import resolve_s3_region

        region = resolve_s3_region(bucket)
    return {**options, "region": region}
