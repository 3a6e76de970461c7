"""Record logs of real brokers' clients, with a client or the broker killed on the way, as in tests/data/brokers.

    python scripts/record_brokers.py OUT [nats] [redis-streams] [mqtt] [amqp]

Needs the brokers (Debian: nats-server, redis-server, mosquitto, rabbitmq-server) and their Python clients (nats-py,
redis, paho-mqtt, pika). Everything runs on loopback, in a temporary folder, and is stopped at the end. Each client is a
process that logs what it does, a JSON object a line, under its own name; messages are known by UUIDs.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

MESSAGES = 40  # of each producer


class ClientLog:
    """A client's own log, written line by line so that a killed client leaves what it did."""

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self._out = (Path(folder) / f"{name}.jsonl").open("a", buffering=1)

    def say(self, op: str, **more: Any) -> None:
        """Write down one thing that the client does or sees."""
        record = {"time_ns": time.time_ns(), "client": self.name, "op": op, **more}
        self._out.write(json.dumps(record) + "\n")


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port of loopback, a minute at most."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens on port {port}")


class Recording:
    """One broker and its clients."""

    def __init__(self, system: str, out: Path, scratch: Path) -> None:
        self.system, self.out, self.scratch, self.port = system, out / system, scratch, free_port()
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.broker: subprocess.Popen[bytes] | None = None
        self.command: list[str] = []
        self.environment: dict[str, str] = {}

    def start(self) -> None:
        """Start the broker, also again after it was killed."""
        output = (self.scratch / "broker.log").open("ab")
        self.broker = subprocess.Popen(
            self.command, stdout=output, stderr=output, env=os.environ | self.environment, start_new_session=True
        )
        wait_for(self.port)

    def kill(self) -> None:
        """Kill the broker and what it has started."""
        assert self.broker is not None
        os.killpg(self.broker.pid, signal.SIGKILL)
        self.broker.wait()

    def client(self, role: str, name: str) -> subprocess.Popen[bytes]:
        """Start a client in a process of its own."""
        command = [sys.executable, __file__, "client", self.system, role, name, str(self.port), str(self.out)]
        return subprocess.Popen(command)


# --- NATS: JetStream for the workers, core NATS for the auditor -------------------------------------------------------


async def nats_client(role: str, log: ClientLog, port: int) -> None:
    """Be a producer or a worker on JetStream, or an auditor on core NATS, which keeps nothing for who is away."""
    nats = importlib.import_module("nats")

    async def lost(*_: Any) -> None:
        log.say("disconnected")

    connection = await nats.connect(
        f"nats://127.0.0.1:{port}", disconnected_cb=lost, reconnect_time_wait=0.5, max_reconnect_attempts=100
    )
    stream = connection.jetstream(timeout=3)
    if role == "setup":
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    elif role == "audit":

        async def heard(message: Any) -> None:
            log.say("msg", subject=message.subject, id=message.headers["Nats-Msg-Id"])

        await connection.subscribe("orders.>", cb=heard)
        log.say("subscribe", subject="orders.>")
        await asyncio.sleep(3600)
    elif role == "produce":
        for number in range(MESSAGES):
            one = str(uuid.uuid4())
            subject = f"orders.{'eu' if number % 2 else 'us'}"
            log.say("publish", subject=subject, id=one)
            for _ in range(40):
                try:
                    found = await stream.publish(subject, b"order", headers={"Nats-Msg-Id": one})
                    log.say("puback", id=one, stream=found.stream, seq=found.seq)
                    break
                except Exception as error:
                    log.say("publish_failed", id=one, error=type(error).__name__)
                    await asyncio.sleep(0.3)
            await asyncio.sleep(0.05)
    else:
        consumer = importlib.import_module("nats.js.api").ConsumerConfig(ack_wait=2, max_ack_pending=100)
        pull = await stream.pull_subscribe("orders.>", durable="workers", config=consumer)
        log.say("subscribe", subject="orders.>", durable="workers")
        while True:
            try:
                messages = await pull.fetch(5, timeout=1)
            except Exception:
                await asyncio.sleep(0.2)
                continue
            for message in messages:
                delivered = message.metadata.num_delivered
                one = message.headers["Nats-Msg-Id"]
                log.say("msg", subject=message.subject, id=one, durable="workers", num_delivered=delivered)
                await asyncio.sleep(0.05)
                try:
                    await message.ack_sync(timeout=1)
                    log.say("ack", id=one)
                except Exception as error:
                    log.say("ack", id=one, error=type(error).__name__)


def record_nats(recording: Recording) -> None:
    """Kill a worker, then the broker, which comes back after a second."""
    store = str(recording.scratch / "store")
    recording.command = ["nats-server", "-a", "127.0.0.1", "-p", str(recording.port), "-js", "-sd", store]
    recording.start()
    recording.client("setup", "setup").wait()
    workers = [recording.client("work", name) for name in ("worker-a", "worker-b")]
    audit = recording.client("audit", "audit")
    time.sleep(2)
    producers = [recording.client("produce", name) for name in ("till-1", "till-2")]
    time.sleep(0.8)
    workers[0].kill()
    time.sleep(0.4)
    recording.kill()
    time.sleep(1)
    recording.start()
    finish(producers, [*workers[1:], audit], quiet=6)


# --- Redis streams ----------------------------------------------------------------------------------------------------


def redis_client(role: str, log: ClientLog, port: int) -> None:
    """Be a producer, or a worker that also claims what others left unacknowledged."""
    redis = importlib.import_module("redis").Redis(port=port, decode_responses=True)
    if role == "setup":
        redis.xgroup_create("orders", "workers", id="0", mkstream=True)
    elif role == "produce":
        for _ in range(MESSAGES):
            log.say("xadd", stream="orders", id=redis.xadd("orders", {"order": str(uuid.uuid4())}))
            time.sleep(0.05)
    else:
        log.say("subscribe", stream="orders", group="workers")
        while True:
            for _, entries in redis.xreadgroup("workers", log.name, {"orders": ">"}, count=5, block=500) or ():
                for entry, _ in entries:
                    log.say("xreadgroup", stream="orders", group="workers", id=entry)
                    time.sleep(0.05)
                    redis.xack("orders", "workers", entry)
                    log.say("xack", stream="orders", group="workers", id=entry)
            for entry, _ in redis.xautoclaim("orders", "workers", log.name, 1500)[1]:
                [pending] = redis.xpending_range("orders", "workers", entry, entry, 1)
                times = pending["times_delivered"]
                log.say("xautoclaim", stream="orders", group="workers", id=entry, times_delivered=times)
                redis.xack("orders", "workers", entry)


def record_redis(recording: Recording) -> None:
    """Kill a worker."""
    folder, port = str(recording.scratch), str(recording.port)
    recording.command = ["redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", folder, "--appendonly", "yes"]
    recording.start()
    recording.client("setup", "setup").wait()
    workers = [recording.client("work", name) for name in ("worker-a", "worker-b")]
    producers = [recording.client("produce", name) for name in ("till-1", "till-2")]
    time.sleep(1)
    workers[0].kill()
    finish(producers, workers[1:], quiet=5)


# --- MQTT: a device that is away while the broker is killed -----------------------------------------------------------


def mqtt_client(role: str, log: ClientLog, port: int) -> None:
    """Be a producer at QoS 1, or a subscriber whose session the broker is to keep."""
    mqtt = importlib.import_module("paho.mqtt.client")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=log.name, clean_session=role == "produce")
    if role == "produce":
        sent: dict[int, str] = {}
        client.on_publish = lambda _c, _u, mid, *_: log.say("puback", message_id=sent[mid])
        client.connect("127.0.0.1", port)
        client.loop_start()
        for number in range(MESSAGES):
            one = str(uuid.uuid4())
            topic = f"plant/{'hall' if number % 2 else 'yard'}/temperature"
            log.say("publish", topic=topic, message_id=one, qos=1)
            info = client.publish(topic, one, qos=1)
            sent[info.mid] = one
            info.wait_for_publish(10)
            time.sleep(0.05)
        client.disconnect()
        return

    def heard(_client: Any, _user: Any, message: Any) -> None:
        log.say("message", topic=message.topic, message_id=message.payload.decode(), dup=message.dup)

    def connected(client: Any, _user: Any, flags: Any, *_: Any) -> None:
        log.say("connack", session_present=flags.session_present)
        client.subscribe("plant/+/temperature", qos=1)

    client.on_message, client.on_connect = heard, connected
    client.on_subscribe = lambda *_: log.say("subscribe", topic="plant/+/temperature", qos=1)
    client.connect("127.0.0.1", port)
    client.loop_forever(retry_first_connection=True)


def record_mqtt(recording: Recording) -> None:
    """Kill a subscriber, then the broker, before it has saved the session that it keeps for it."""
    config = recording.scratch / "mosquitto.conf"
    config.write_text(
        f"listener {recording.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {recording.scratch}/\nautosave_interval 1800\nuser {getpass.getuser()}\n"
    )
    recording.command = ["mosquitto", "-c", str(config)]
    recording.start()
    consumers = [recording.client("consume", name) for name in ("display", "historian")]
    time.sleep(2)
    producers = [recording.client("produce", name) for name in ("sensor-1", "sensor-2")]
    time.sleep(0.6)
    consumers[1].kill()  # the historian is away, its session is the broker's to keep
    for producer in producers:
        producer.wait()
    time.sleep(1)
    recording.kill()
    recording.start()
    consumers[1] = recording.client("consume", "historian")
    finish([], consumers, quiet=4)


# --- AMQP -------------------------------------------------------------------------------------------------------------


def amqp_client(role: str, log: ClientLog, port: int) -> None:
    """Be a producer with confirms, or a consumer of one of two queues."""
    pika = importlib.import_module("pika")
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.exchange_declare("orders", exchange_type="topic", durable=True)
    if role == "setup":
        for queue, key in (("billing", "order.*"), ("eu-mail", "order.eu")):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "orders", routing_key=key)
    elif role == "produce":
        channel.confirm_delivery()
        for number in range(MESSAGES):
            one = str(uuid.uuid4())
            key = f"order.{'eu' if number % 2 else 'us'}"
            log.say("publish", routing_key=key, message_id=one)
            channel.basic_publish("orders", key, b"order", pika.BasicProperties(message_id=one, delivery_mode=2))
            log.say("confirm", message_id=one)
            time.sleep(0.05)
    else:
        queue, key = ("eu-mail", "order.eu") if role == "mail" else ("billing", "order.*")
        log.say("consume", queue=queue, routing_key=key)
        channel.basic_qos(prefetch_count=5)
        for method, properties, _ in channel.consume(queue):
            about = {"queue": queue, "routing_key": method.routing_key, "message_id": properties.message_id}
            log.say("deliver", **about, redelivered=method.redelivered, delivery_tag=method.delivery_tag)
            time.sleep(0.05)
            channel.basic_ack(method.delivery_tag)
            log.say("ack", queue=queue, message_id=properties.message_id)


def record_amqp(recording: Recording) -> None:
    """Kill one of the two consumers of a queue."""
    folder = recording.scratch
    recording.environment = {
        "RABBITMQ_NODE_PORT": str(recording.port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "recorded@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "HOME": str(folder),
    }
    # Debian's wrapper in the search path changes user; the server itself lies beside it in the library's folder
    recording.command = [os.environ.get("RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server")]
    recording.start()
    recording.client("setup", "setup").wait()
    workers = [recording.client("work", name) for name in ("billing-a", "billing-b")]
    mail = recording.client("mail", "mailer")
    producers = [recording.client("produce", name) for name in ("shop-1", "shop-2")]
    time.sleep(1.5)
    workers[0].kill()
    finish(producers, [*workers[1:], mail], quiet=5)


# --- all of them ------------------------------------------------------------------------------------------------------


def finish(producers: list[subprocess.Popen[bytes]], consumers: list[subprocess.Popen[bytes]], quiet: float) -> None:
    """Let the producers end, and the consumers after a while in which they get what is left."""
    for producer in producers:
        producer.wait()
    time.sleep(quiet)
    for consumer in consumers:
        consumer.kill()
        consumer.wait()


RECORDERS = {"nats": record_nats, "redis-streams": record_redis, "mqtt": record_mqtt, "amqp": record_amqp}


def main(arguments: list[str]) -> None:
    """Record the systems that are named, or be one of their clients."""
    if arguments[0] == "client":
        _, system, role, name, port, folder = arguments
        log = ClientLog(folder, name)
        if system == "nats":
            asyncio.run(nats_client(role, log, int(port)))
        else:
            {"redis-streams": redis_client, "mqtt": mqtt_client, "amqp": amqp_client}[system](role, log, int(port))
        return
    out, *systems = arguments
    for system in systems or RECORDERS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            recording = Recording(system, Path(out).absolute(), Path(scratch))
            try:
                RECORDERS[system](recording)
            finally:
                if recording.broker is not None and recording.broker.poll() is None:
                    recording.kill()
        for empty in [file for file in recording.out.iterdir() if not file.stat().st_size]:
            empty.unlink()
        print(system, {file.name: len(file.read_text().splitlines()) for file in sorted(recording.out.iterdir())})


if __name__ == "__main__":
    main(sys.argv[1:])
