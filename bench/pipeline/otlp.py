"""OpenTelemetry exports of any size: a topic of eight partitions, sixteen producers, sixteen consumers in two groups.

    python bench/pipeline/otlp.py OUT --spans 10_000_000 --form protobuf

Each message is sent once and processed once by each group, so a third of the spans are sendings, and all guarantees of
brokers hold. Ids are UUIDs; an export has 200 spans of one service, as collectors batch them, in compact JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

PARTITIONS, CLIENTS, GROUPS, BATCH = 8, 16, 2, 200
START_NS = 1_760_000_000_000_000_000
FILE_SPANS = 250_000


class Span(NamedTuple):
    """What a span says."""

    number: int
    time: int
    message: str
    operation: str
    partition: int
    group: str | None


def attributes(operation: str, partition: int, group: str | None) -> dict[str, str]:
    """Return what the spans of one operation on one partition have in common."""
    told = {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(partition),
        "messaging.message.body.size": "512",
    }
    return told | ({"messaging.consumer.group.name": group} if group else {})


def json_pairs(values: dict[str, str]) -> str:
    return json.dumps(
        [{"key": key, "value": {"stringValue": value}} for key, value in values.items()], separators=(",", ":")
    )


@functools.cache
def json_rest(operation: str, partition: int, group: str | None) -> str:
    told = json_pairs(attributes(operation, partition, group) | {"messaging.message.id": ""})
    return told.removesuffix('"}}]')


def as_json(service: str, spans: list[Span]) -> bytes:
    """One export as a line of JSON."""
    written = ",".join(
        f'{{"traceId":"{one.number:032x}","spanId":"{one.number:016x}","parentSpanId":"","name":"orders",'
        f'"kind":{4 if one.operation == "send" else 5},"startTimeUnixNano":"{one.time}",'
        f'"endTimeUnixNano":"{one.time + 50_000}",'
        f'"attributes":{json_rest(one.operation, one.partition, one.group)}{one.message}"}}}}],"status":{{}}}}'
        for one in spans
    )
    resource = json_pairs({"service.name": "orders", "service.instance.id": service})
    scopes = f'[{{"scope":{{"name":"bench"}},"spans":[{written}]}}]'
    return f'{{"resourceSpans":[{{"resource":{{"attributes":{resource}}},"scopeSpans":{scopes}}}]}}\n'.encode()


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
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


@functools.cache
def protobuf_rest(operation: str, partition: int, group: str | None) -> bytes:
    return pairs(attributes(operation, partition, group), 9)


def as_protobuf(service: str, spans: list[Span]) -> bytes:
    """One export behind its length."""
    key = field(1, b"messaging.message.id")
    written = b"".join(
        field(
            2,
            field(1, one.number.to_bytes(16))
            + field(2, one.number.to_bytes(8))
            + bytes([6 << 3, 4 if one.operation == "send" else 5, 7 << 3 | 1])
            + struct.pack("<Q", one.time)
            + protobuf_rest(one.operation, one.partition, one.group)
            + field(9, key + field(2, field(1, one.message.encode()))),
        )
        for one in spans
    )
    resource = field(1, pairs({"service.name": "orders", "service.instance.id": service}, 1))
    export = field(1, resource + field(2, written))
    return struct.pack(">I", len(export)) + export


def generate(out: Path, spans: int, form: str, seed: int = 1) -> int:
    """Write the exports of about so many spans; return how many."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    encode, suffix = (as_json, "jsonl") if form == "json" else (as_protobuf, "pb")
    waiting: dict[str, list[Span]] = {}
    producers = rng.integers(CLIENTS, size=spans // (1 + GROUPS)).tolist()
    number, file = 0, None
    for message in range(spans // (1 + GROUPS)):
        partition = message % PARTITIONS
        one = f"{message:08x}-8f3a-4c1e-9b7d-{message * 2654435761 % 2**48:012x}"
        who: list[tuple[str, str, str | None]] = [(f"producer-{producers[message]:02}", "send", None)]
        who += [(f"consumer-{group}-{partition}", "process", f"group-{group}") for group in range(GROUPS)]
        for late, (service, operation, group) in enumerate(who):
            if number % FILE_SPANS == 0:
                if file is not None:
                    file.close()
                file = (out / f"spans-{number // FILE_SPANS:04}.{suffix}").open("wb")
            number += 1
            time = START_NS + message * 10_000 + late * 1_000_000
            waiting.setdefault(service, []).append(Span(number, time, one, operation, partition, group))
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
