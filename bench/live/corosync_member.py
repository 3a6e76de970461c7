"""One member of the same job on Corosync's CPG (agreed order): a daemon of its own, and a client in C.

Four daemons on one machine need a view of the file system each, so that their sockets and locks do not collide; so
this runs as root only. The daemon's CPU counts as the member's. No encryption, as Corosync does by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_CONFIG = """
totem {{
    version: 2
    cluster_name: bench
    transport: {transport}
    {unsealed}
    interface {{
        ringnumber: 0
        mcastport: {port}
    }}
}}
nodelist {{
{nodes}
}}
logging {{
    to_stderr: no
    to_syslog: no
    to_logfile: no
}}
system {{
    state_dir: {state}
    move_to_root_cgroup: no
    sched_rr: no
}}
"""
_NODE = """    node {{
        name: node{number}
        nodeid: {number}
        ring0_addr: 127.0.0.{number}
    }}"""
_OWN_FILES = """
mount -t tmpfs none {here}
mkdir {here}/etc {here}/work {here}/state
mount -t overlay none -o lowerdir=/etc,upperdir={here}/etc,workdir={here}/work /etc
mkdir -p /etc/libqb && touch /etc/libqb/force-filesystem-sockets
mount -t tmpfs none /run
exec "$@"
"""


def die_with_parent() -> None:
    """Leave no daemon behind when the benchmark is stopped."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def cpu_s_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    about: dict[str, Any] = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as here:
        if "own_files" not in about:
            words = [sys.executable, "-m", "bench.live.corosync_member", json.dumps({**about, "own_files": here})]
            own_files = ["unshare", "--mount", "sh", "-ec", _OWN_FILES.format(here=here), "sh"]
            subprocess.run([*own_files, *words], check=True, preexec_fn=die_with_parent)
            return
    take_part(about, Path(about["own_files"]))


def take_part(about: dict[str, Any], here: Path) -> None:
    everyone = sorted((about["bind"], *about["peers"]))
    nodes = "\n".join(_NODE.format(number=number) for number in range(1, len(everyone) + 1))
    port = 1024 + int(everyone[0].rpartition(":")[2]) // 4 * 2  # all are given the same addresses
    config = here / "corosync.conf"
    unsealed = "crypto_cipher: none\n    crypto_hash: none"
    config.write_text(
        _CONFIG.format(transport=about["transport"], unsealed=unsealed, port=port, nodes=nodes, state=here / "state")
    )
    daemon = subprocess.Popen(
        ["corosync", "-f", "-c", str(config)], stdout=subprocess.DEVNULL, preexec_fn=die_with_parent
    )
    client = subprocess.Popen(
        [about["client"], *(str(about[key]) for key in ("size", "rate", "seconds", "thin")), str(len(everyone))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        print(client.stdout.readline(), end="", flush=True)
        start = sys.stdin.readline()
        client.stdin.write(start)
        client.stdin.flush()
        time.sleep(max(0.0, float(start) - time.monotonic()))
        cpu = cpu_s_of(daemon.pid)
        said = json.loads(client.stdout.readline())
        said["cpu_s"] += cpu_s_of(daemon.pid) - cpu
        print(json.dumps({**said, "counts": {}}), flush=True)
        sys.stdin.readline()
    finally:
        client.kill()
        daemon.kill()
        daemon.wait()


if __name__ == "__main__":
    main()
