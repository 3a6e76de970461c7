"""Names are not addresses: members by host name, by the DNS, and the example for Kubernetes."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import antiphon
from antiphon import testing
from antiphon.commands import join
from antiphon.errors import UsageError
from antiphon.live.addresses import entries_of, parse
from antiphon.live.freshness import Stamp
from antiphon.live.hello import Contact, Hello, Seal
from antiphon.live.session import Refused
from antiphon.testing import World

KUBERNETES = Path(__file__).parents[2] / "examples" / "kubernetes"


@pytest.mark.parametrize("key", [None, bytes(range(16))], ids=["open", "sealed"])
def test_a_member_that_returns_under_its_host_name_at_another_address_gets_in(key: bytes | None) -> None:
    async def main(world: World) -> None:
        one, two, three, elsewhere = world.addresses(4)
        hosts = {f"host-{index}": address for index, address in enumerate((one, two, three))}
        loop: Any = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def getaddrinfo(host: str, port: int, **how: Any) -> list[Any]:
            return await real(hosts.get(host, host).partition(":")[0], port, **how)  # type: ignore[no-any-return]

        loop.getaddrinfo = getaddrinfo
        names = [f"{host}:7000" for host in hosts]
        groups = [
            antiphon.join("test", bind=own, address=name, peers=[peer for peer in names if peer != name], key=key)
            for own, name in zip(hosts.values(), names, strict=True)
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        while any(group.status().members != tuple(names) for group in groups):
            await asyncio.sleep(0.1)
        await groups[1].stop()
        await asyncio.sleep(1)
        hosts["host-1"] = elsewhere
        async with antiphon.join(
            "test", bind=elsewhere, address=names[1], peers=[names[0], names[2]], key=key
        ) as again:
            while any(set(group.status().members) != set(names) for group in (groups[0], groups[2], again)):
                await asyncio.sleep(0.1)
            await (await again.send(b"back")).stable()

    testing.run(main, seed=1)


@pytest.mark.parametrize("key", [None, bytes(range(16))], ids=["open", "sealed"])
@pytest.mark.parametrize("answers", ["in turn", "all, in another order each time"])
def test_a_host_with_several_addresses_is_spoken_to_where_it_is_heard(answers: str, key: bytes | None) -> None:
    """The DNS gives some of a host's addresses at a time; at one of them nobody answers."""

    async def main(world: World) -> None:
        own, other, nobody = world.addresses(3)
        loop: Any = asyncio.get_running_loop()
        real, asked = loop.getaddrinfo, 0

        async def getaddrinfo(host: str, port: int, **how: Any) -> list[Any]:
            nonlocal asked
            if host != "twofold":
                return await real(host, port, **how)  # type: ignore[no-any-return]
            asked += 1
            both = [await real(one.partition(":")[0], port, **how) for one in (nobody, other)]
            both = both[:: 1 if world.now % 4 < 2 else -1]
            return both[0] if answers == "in turn" else both[0] + both[1]  # type: ignore[no-any-return]

        loop.getaddrinfo = getaddrinfo
        groups = [
            antiphon.join("test", bind=own, peers=["twofold:7000"], key=key),
            antiphon.join("test", bind=other, address="twofold:7000", peers=[own], key=key),
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        began = groups[0].status().view
        for _ in range(10):
            await asyncio.sleep(2)
            await (await groups[0].send(b"still there?")).stable()
        assert asked > 8
        assert groups[0].status().view == began, "nobody was looked for where it is not"

    testing.run(main, seed=1)


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64, "a." + "x" * 64, "\ud800"])
@pytest.mark.parametrize("where", ["bind", "address", "peers", "discover"])
def test_what_can_be_no_host_name_is_said_in_one_line(host: str, where: str) -> None:
    settings: dict[str, Any] = {
        "bind": {"bind": f"{host}:7001"},
        "address": {"bind": "127.0.0.1:7001", "address": f"{host}:7001"},
        "peers": {"bind": "127.0.0.1:7001", "peers": ["127.0.0.1:7002", f"{host}:7001"]},
        "discover": {"bind": "127.0.0.1:7001", "discover": f"dns:{host}:7001"},
    }[where]

    async def join_it() -> None:
        async with antiphon.join("test", **settings):
            pass

    with pytest.raises(UsageError, match=r"host name|surrogate"):
        asyncio.run(join_it())


@pytest.mark.parametrize("wildcard", ["0.0.0.0:7001", "[::]:7001"])
@pytest.mark.parametrize("where", ["bind", "address"])
@pytest.mark.parametrize("how", [{"peers": ["h:7002"]}, {"discover": "peers", "members": 2, "peers": ["h:7002"]}])
def test_every_address_of_a_machine_is_none_for_the_others(wildcard: str, where: str, how: dict[str, Any]) -> None:
    own = {"bind": wildcard} if where == "bind" else {"bind": "127.0.0.1:7001", "address": wildcard}

    async def join_it() -> None:
        async with antiphon.join("test", **own, **how):
            pass

    with pytest.raises(UsageError, match=f"{where}: .* is no address at which the others reach this member"):
        asyncio.run(join_it())


@pytest.mark.parametrize("address", ["0.0.0.0:7001", "[::]:7001", "239.1.2.3:7001", "[ff02::1]:7001", "h:7001"])
def test_a_hello_from_nowhere_is_refused(address: str) -> None:
    with pytest.raises(Refused, match="no-address"):
        Contact("name", address).socket_address()


def test_a_hello_from_nowhere_disturbs_nobody_who_looks() -> None:
    async def main(world: World) -> None:
        addresses = world.addresses(2)
        groups = [
            antiphon.join("test", bind=own, discover="peers", members=2, peers=[other])
            for own, other in zip(addresses, reversed(addresses), strict=True)
        ]
        joining = [asyncio.create_task(groups[0].__aenter__())]
        await asyncio.sleep(1)
        for number, nowhere in enumerate(("h:7001", "0.0.0.0:7001", "239.1.2.3:7001")):
            hello = Hello(Stamp(number + 1, 1, 1), Contact(f"x{number}", nowhere), False, None, ())
            target = parse(addresses[0], "address")
            world.network.inject(Seal("test", None).seal(hello), ("10.9.9.9", 7), target)
        await asyncio.sleep(1)
        joining.append(asyncio.create_task(groups[1].__aenter__()))
        await asyncio.gather(*joining)
        await (await groups[0].send(b"found")).stable()
        assert groups[0].status().counts["refused-no-address"] == 3

    testing.run(main)


def test_a_host_without_an_address_of_the_family_is_said() -> None:
    async def main(world: World) -> None:
        loop: Any = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def getaddrinfo(host: str, port: int, **how: Any) -> list[Any]:
            return await real("::1" if host == "six" else host, port, **how)  # type: ignore[no-any-return]

        loop.getaddrinfo = getaddrinfo
        with pytest.raises(UsageError, match="'six:7000' has no IPv4 address, and this member speaks no other"):
            await antiphon.join("test", bind=world.addresses(1)[0], peers=["six:7000"]).__aenter__()

    testing.run(main)


def test_names_of_a_list_do_not_depend_on_how_they_are_written() -> None:
    own, entries = entries_of("localhost:7002", ["DB.example:7001", "[::0001]:7003"])
    assert own == "127.0.0.1:7002"
    assert entries == ["127.0.0.1:7002", "[::1]:7003", "db.example:7001"]
    with pytest.raises(UsageError, match="given twice"):
        entries_of("a:1", ["b:1", "B:1"])


_BY_DNS = """
import asyncio, sys
import antiphon
from dnslib import A, QTYPE, RR
from dnslib.server import BaseResolver, DNSServer

hosts = ["127.0.0.1", "127.0.0.2"]

class Zone(BaseResolver):
    def resolve(self, request, handler):
        reply = request.reply()
        if request.q.qtype == QTYPE.A and str(request.q.qname) == "orders.test.":
            for host in hosts:
                reply.add_answer(RR("orders.test", QTYPE.A, rdata=A(host), ttl=0))
        return reply

DNSServer(Zone(), address="127.0.0.1", port=53).start_thread()

async def main(folder):
    where = {"discover": "dns:orders.test", "members": 3, "state": folder}
    every = [f"127.0.0.{host}:7001" for host in (1, 2, 3)]
    groups = [antiphon.join("test", bind=own, **where) for own in every]
    await asyncio.gather(*(group.__aenter__() for group in groups[:2]))
    late = asyncio.create_task(groups[2].__aenter__())
    hosts.append("127.0.0.3")
    await late
    while any(len(group.status().members) < 3 for group in groups):
        await asyncio.sleep(0.05)
    await (await groups[2].send(b"found")).stable()
    hosts[:] = ["127.0.0.4"]  # the others are published a moment later
    fourth = antiphon.join("test", bind="127.0.0.4:7001", **where)
    entering = asyncio.create_task(fourth.__aenter__())
    await asyncio.sleep(0.3)
    hosts.append("127.0.0.1")
    await entering
    print(sorted(fourth.status().members))
    await asyncio.gather(*(group.stop() for group in (*groups, fourth)))

asyncio.run(asyncio.wait_for(main(sys.argv[1]), 40))
"""


def test_members_find_each_other_by_a_name_in_the_dns(tmp_path: Path) -> None:
    """With a real name server, in namespaces of their own, where the system asks that server."""
    names = tmp_path / "resolv.conf"
    names.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
    switch = tmp_path / "nsswitch.conf"
    switch.write_text("hosts: files dns\n")
    binds = f"mount --bind {names} /etc/resolv.conf && mount --bind {switch} /etc/nsswitch.conf"
    namespaces = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespaces, f"{binds} && ip link set lo up"], capture_output=True).returncode
    ):
        pytest.skip("no namespaces here")
    command = f"{binds} && ip link set lo up && exec {sys.executable} - {tmp_path}"
    done = subprocess.run([*namespaces, command], input=_BY_DNS, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "127.0.0.4:7001" in done.stdout


@pytest.mark.parametrize("discover", ["dns:orders:0", "dns:orders:port"])
def test_a_name_that_cannot_be_one_is_said(discover: str) -> None:
    with pytest.raises(UsageError, match=r"discover: .* is no address"):
        antiphon.join("test", bind="127.0.0.1:7001", discover=discover)


def test_the_example_for_kubernetes_is_what_the_command_takes() -> None:
    service, workload = yaml.safe_load_all((KUBERNETES / "statefulset.yaml").read_text())
    assert service["spec"]["clusterIP"] == "None"
    assert workload["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    parser = argparse.ArgumentParser()
    join.configure(parser)
    args = parser.parse_args([word.replace("$(ADDRESS)", "10.0.0.1") for word in container["args"]])
    assert args.members == workload["spec"]["replicas"]
    assert args.discover == f"dns:{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    volumes = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(args.state), str(args.key_file.parent)} == volumes
    assert parse(args.bind, "bind") == ("10.0.0.1", 7001)
    image, pod = (KUBERNETES / "Containerfile").read_text(), workload["spec"]["template"]["spec"]
    assert 'ENTRYPOINT ["antiphon", "join"]' in image
    assert f"USER {pod['securityContext']['fsGroup']}\n" in image, "who may write on the disk"
