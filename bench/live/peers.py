"""The same job on other systems, each if it is installed: what a delivery costs there, in the same run.

On Debian: apt-get install --no-install-recommends corosync libcpg-dev gcc libjgroups-java libcommons-logging-java
default-jdk-headless; from PyPI: pip install pysyncobj pyzmq. No test needs any of it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.live import jgroups_member

_HERE = Path(__file__).parent


class Peer(NamedTuple):
    """Another system: its order, the program of a member, what its members are told, and how it is made ready."""

    order: str
    program: str
    about: Mapping[str, str] = MappingProxyType({})
    lacks: Callable[[], str | None] = lambda: None
    make: Callable[[Path], dict[str, str]] = lambda _: {}  # told to the members too


def _corosync_lacks() -> str | None:
    if os.geteuid() != 0:
        return "four daemons on one machine take root's rights"
    for program in ("corosync", "unshare", "cc"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None if Path("/usr/include/corosync/cpg.h").exists() else "libcpg-dev is not installed"


def _make_corosync_client(folder: Path) -> dict[str, str]:
    client = folder / "corosync-client"
    subprocess.run(["cc", "-O2", "-o", client, _HERE / "corosync_client.c", "-lcpg"], check=True)
    return {"client": str(client)}


def _jgroups_lacks() -> str | None:
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return next((f"{jar} is not there" for jar in jgroups_member.JARS if not Path(jar).exists()), None)


def _make_jgroups_client(folder: Path) -> dict[str, str]:
    source = _HERE / "JGroupsClient.java"
    subprocess.run(["javac", "-cp", jgroups_member.JARS[0], "-d", folder, source], check=True)
    return {"classes": str(folder)}


def _package_lacks(name: str) -> Callable[[], str | None]:
    return lambda: None if importlib.util.find_spec(name) else f"the package {name} is not installed"


def _corosync(transport: str) -> Peer:
    about = {"transport": transport}
    return Peer("total", "bench.live.corosync_member", about, _corosync_lacks, _make_corosync_client)


def _jgroups(order: str, stack: str) -> Peer:
    return Peer(order, "bench.live.jgroups_member", {"stack": stack}, _jgroups_lacks, _make_jgroups_client)


PEERS = {
    "corosync-knet": _corosync("knet"),
    "corosync-udpu": _corosync("udpu"),
    "jgroups-udp": _jgroups("fifo", "udp.xml"),
    "jgroups-tcp": _jgroups("fifo", "tcp.xml"),
    "jgroups-sequencer": _jgroups("total", "sequencer.xml"),
    "pysyncobj": Peer("total", "bench.live.pysyncobj_member", lacks=_package_lacks("pysyncobj")),
    "pyzmq": Peer("none", "bench.live.zmq_member", lacks=_package_lacks("zmq")),
}


def measure_peers(
    measure: Callable[..., dict[str, Any]], names: Sequence[str], **about: Any
) -> Iterator[dict[str, Any]]:
    """Run the job on each of these systems; say of those that are not there what they lack."""
    for name in names:
        peer = PEERS[name]
        row = {"peer": name, "ordering": peer.order, "bytes": about["size"], "rate": about["rate"] or "flood"}
        lacks = peer.lacks()
        if lacks is not None:
            yield {**row, "skipped": lacks}
            continue
        with tempfile.TemporaryDirectory() as folder:
            told = {**peer.about, **peer.make(Path(folder))}
            for again in (True, False):
                try:
                    yield {**row, **measure(peer.program, encrypted=False, thin=10, **about, **told)}
                    break
                except (
                    AssertionError,
                    ValueError,
                ) as error:  # members that did not find each other may do so next time
                    if not again:
                        yield {**row, "failed": str(error)}
