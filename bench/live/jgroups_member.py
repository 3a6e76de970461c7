"""One member of the same job on JGroups, with the stacks of its package: fifo over UDP or TCP, or SEQUENCER."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

JARS = ("/usr/share/java/jgroups.jar", "/usr/share/java/commons-logging.jar")


def main() -> None:
    about: dict[str, Any] = json.loads(sys.argv[1])
    everyone = sorted((about["bind"], *about["peers"]))
    port = int(everyone[0].rpartition(":")[2])  # all are given the same addresses
    properties = {
        "java.net.preferIPv4Stack": "true",
        "jgroups.bind_addr": "127.0.0.1",
        "jgroups.udp.mcast_addr": "239.77.77.77",
        "jgroups.udp.mcast_port": port,
        "jgroups.udp.ip_ttl": 0,
        "jgroups.tcpping.initial_hosts": ",".join(f"127.0.0.1[{7800 + place}]" for place in range(len(everyone))),
        "org.apache.commons.logging.Log": "org.apache.commons.logging.impl.NoOpLog",
    }
    numbers = [str(about[key]) for key in ("size", "rate", "seconds", "thin")]
    place = str(everyone.index(about["bind"]))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.execvp(
        "java",
        [
            "java",
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            ":".join((*JARS, about["classes"])),
            "JGroupsClient",
            about["stack"],
            *numbers,
            str(len(everyone)),
            place,
        ],
    )


if __name__ == "__main__":
    main()
