"""An S3 service on loopback, in a process of its own, for tests whose traces and results lie in a store."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from pyarrow import fs

from pipeline.cluster import free_port

BUCKET = "traces"


class S3Service:
    """Where it listens, and what its users must know."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.hadoop = {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": "somebody",
            "fs.s3a.secret.key": "secret",
        }
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def files(self) -> fs.S3FileSystem:
        """The service as pyarrow sees it."""
        return fs.S3FileSystem(
            access_key="somebody",
            secret_key="secret",
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def put(self, folder: Path, key: str) -> str:
        """Copy a folder there; return its URI."""
        fs.copy_files(str(folder), f"{BUCKET}/{key}", destination_filesystem=self.files)
        return f"s3a://{BUCKET}/{key}"

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin so."""
        found = self.files.get_file_info(fs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True))
        return sorted(one.path.removeprefix(f"{BUCKET}/") for one in found if one.is_file)


@contextmanager
def s3_service() -> Iterator[S3Service]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, **quiet) as process:  # type: ignore[call-overload]
        try:
            service = S3Service(port)
            _wait_for(service.endpoint, process)
            service.files.create_dir(BUCKET)
            yield service
        finally:
            process.kill()


def _wait_for(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the service has ended"
        try:
            with urlopen(f"{endpoint}/moto-api/", timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the service does not answer")
