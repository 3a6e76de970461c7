"""OpenTelemetry exports of any size: a topic of eight partitions, sixteen producers, sixteen consumers in two groups.

    python bench/pipeline/otlp.py OUT --spans 10_000_000 --form protobuf

Each message is sent once and processed once by each group, so a third of the spans are sendings, and all guarantees of
brokers hold. Ids are UUIDs; an export has 200 spans of one service, as collectors batch them.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

PARTITIONS, CLIENTS, GROUPS, BATCH = 8, 16, 2, 200
START_NS = 1_760_000_000_000_000_000
FILE_SPANS = 250_000


def attributes(operation: str, message: str, partition: int, group: str | None) -> dict[str, str]:
    told = {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(partition),
        "messaging.message.id": message,
        "messaging.message.body.size": "512",
    }
    return told | ({"messaging.consumer.group.name": group} if group else {})


def as_json(service: str, spans: list[tuple[int, int, dict[str, str]]]) -> bytes:
    """One export as a line of JSON."""

    def pairs(values: dict[str, str]) -> list[dict[str, Any]]:
        return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]

    written = [
        {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "orders",
            "kind": 4 if told["messaging.operation.type"] == "send" else 5,
            "startTimeUnixNano": str(time),
            "endTimeUnixNano": str(time + 50_000),
            "attributes": pairs(told),
        }
        for number, time, told in spans
    ]
    resource = {"attributes": pairs({"service.name": "orders", "service.instance.id": service})}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": written}]}]}).encode() + b"\n"


def as_protobuf(service: str, spans: list[tuple[int, int, dict[str, str]]]) -> bytes:
    """One export behind its length."""

    def field(number: int, content: bytes) -> bytes:
        size = len(content)
        length = b""
        while size >= 128:
            length += bytes([size & 127 | 128])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    def pairs(values: dict[str, str], number: int) -> bytes:
        return b"".join(
            field(number, field(1, key.encode()) + field(2, field(1, value.encode()))) for key, value in values.items()
        )

    written = b"".join(
        field(
            2,
            field(1, number.to_bytes(16))
            + field(2, number.to_bytes(8))
            + bytes([6 << 3, 4 if told["messaging.operation.type"] == "send" else 5, 7 << 3 | 1])
            + struct.pack("<Q", time)
            + pairs(told, 9),
        )
        for number, time, told in spans
    )
    resource = field(1, pairs({"service.name": "orders", "service.instance.id": service}, 1))
    export = field(1, resource + field(2, written))
    return struct.pack(">I", len(export)) + export


def generate(out: Path, spans: int, form: str, seed: int = 1) -> int:
    """Write the exports of about so many spans; return how many."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    encode, suffix = (as_json, "jsonl") if form == "json" else (as_protobuf, "pb")
    waiting: dict[str, list[tuple[int, int, dict[str, str]]]] = {}
    number, file = 0, None
    for message in range(spans // (1 + GROUPS)):
        partition = message % PARTITIONS
        one = (
            str(np.base_repr(message, 16)).lower().rjust(8, "0")
            + "-8f3a-4c1e-9b7d-"
            + f"{message * 2654435761 % 2**48:012x}"
        )
        who = [(f"producer-{rng.integers(CLIENTS):02}", "send", None)]
        who += [(f"consumer-{group}-{partition}", "process", f"group-{group}") for group in range(GROUPS)]
        for late, (service, operation, group) in enumerate(who):
            if number % FILE_SPANS == 0:
                if file is not None:
                    file.close()
                file = (out / f"spans-{number // FILE_SPANS:04}.{suffix}").open("wb")
            number += 1
            told = attributes(operation, one, partition, group)
            waiting.setdefault(service, []).append((number, START_NS + message * 10_000 + late * 1_000_000, told))
            if len(waiting[service]) == BATCH:
                assert file is not None
                file.write(encode(service, waiting.pop(service)))
    assert file is not None
    for service, left in waiting.items():
        file.write(encode(service, left))
    file.close()
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--form", choices=("json", "protobuf"), default="json")
    args = parser.parse_args()
    print(generate(args.out, args.spans, args.form), "spans")


if __name__ == "__main__":
    main()
