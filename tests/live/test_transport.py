"""The ways packets can go: plain, segmented by the kernel, by multicast, on another event loop."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.live.addresses import Address, parse
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.sockets import Port, runs, udp_socket
from antiphon.live.transport import share_packets
from support.live_group import LIMIT_S, collect, members, run


async def talk(groups: list[antiphon.Group]) -> None:
    """Send small and large messages from everyone, and see that everyone has them in one order."""
    large = os.urandom(200_000)
    for index, group in enumerate(groups):
        await group.send(b"small %d" % index)
        await group.send(large)
    streams = await asyncio.gather(*(collect(group, 2 * len(groups)) for group in groups))
    payloads = [[message.payload for message in stream] for stream in streams]
    assert all(one == payloads[0] for one in payloads)
    assert sorted(map(len, payloads[0])) == sorted([7, 200_000] * len(groups))


@pytest.mark.parametrize("offload", [False, None], ids=["plain", "where the kernel has it"])
@pytest.mark.parametrize("key", [None, bytes(16)], ids=["open", "sealed"])
def test_packets_arrive_with_and_without_offload(offload: bool | None, key: bytes | None, tmp_path: Path) -> None:
    async def test() -> None:
        async with members(3, tmp_path, views=False, offload=offload, key=key) as groups:
            if offload is False:
                assert not groups[0].transport.port.segments
                assert not groups[0].transport.port.gathers
            await talk(groups)

    run(test())


def test_a_way_out_that_cannot_segment_is_noticed(tmp_path: Path) -> None:
    """The kernel says that it can, then refuses on one path: there packets go one by one, and none is lost."""

    async def test() -> None:
        async with members(3, tmp_path, views=False) as groups:
            transport = groups[0].transport
            port, real = transport.port, transport.port.socket
            everyone = [address for name in range(3) if (address := transport.address_of(name)) is not None]
            others = [address for address in everyone if address != real.getsockname()]
            port.segments = True

            class Refusing:
                def sendmsg(self, buffers: list[bytes], ancillary: list[Any], flags: int, target: Any) -> int:
                    if target == others[0]:
                        raise OSError(5, "Input/output error")
                    return real.sendmsg(buffers, ancillary, flags, target)

                def __getattr__(self, name: str) -> object:
                    return getattr(real, name)

            port.socket = Refusing()  # type: ignore[assignment]
            await talk(groups)
            assert [port.segments_to(other, 1_252) for other in others] == [False, True]
            assert groups[0].status().counts["offload-refused"] == 1

    run(test())


def test_a_packet_that_asks_whether_its_size_fits_goes_by_itself(tmp_path: Path) -> None:
    """Switches of virtual machines let a train of segments pass whose packets they would drop one by one."""

    async def test() -> None:
        async with members(2, tmp_path, views=False) as groups:
            transport, sent = groups[0].transport, []
            for name in range(2):
                transport._prober.path_to(transport.address_of(name)).trust(8_972)
            transport.port.send = lambda packets, targets: sent.append([len(packet) for packet in packets])  # type: ignore[method-assign]
            transport.queue(None, os.urandom(40_000))
            transport.flush()
            alone, others = [sizes for sizes in sent if sizes]
            assert alone == [8_972]
            assert len(others) == 4
            del transport.port.send

    run(test())


def test_runs_are_what_the_kernel_can_cut_again() -> None:
    packets = [bytes(1_400)] * 50 + [bytes(3), bytes(7), bytes(7), bytes(9)]
    joined = runs(packets)
    cut = [run[start : start + size] for run, size in joined for start in range(0, len(run), size)]
    assert cut == packets
    assert [len(run) // size for run, size in joined] == [46, 4, 2, 1]
    assert all(len(run) <= 65_507 for run, _ in joined)


def test_what_one_is_told_in_a_turn_shares_a_packet() -> None:
    everyone, outbox = (1, 2, 3), {(1,): [b"to one"], (1, 2, 3): [b"to all", b"once more"], (3,): [b"to three"]}
    together = share_packets(outbox, 100)
    assert sorted(name for to in together for name in to) == list(everyone), "one packet for each"
    told = {name: sorted(datagrams) for to, datagrams in together.items() for name in to}
    assert told == {
        name: sorted(datagram for to, datagrams in outbox.items() if name in to for datagram in datagrams)
        for name in everyone
    }
    assert share_packets(outbox, 10) is outbox, "too large to share"
    many = {(name,): [b"to %d" % name] for name in range(60)} | {tuple(range(60)): [b"to all"]}
    assert len(share_packets(many, 100)) == 60, "however many there are"


@pytest.mark.parametrize(
    ("first", "answers", "expected"),
    [
        pytest.param(1, True, [1, 1, "over"], id="few"),
        pytest.param(1, False, [1, "over", 1, "over"], id="nothing to answer"),
        pytest.param(100, True, [64, "over", 37, "over"], id="many"),
    ],
)
def test_what_comes_while_a_few_packets_are_taken_is_answered_with_them(
    first: int, answers: bool, expected: list[int | str]
) -> None:
    """After many it waits for the next wake-up: what follows from them is to be sent first."""
    seen: list[int | str] = []

    async def test() -> None:
        port = Port(
            ("127.0.0.1", 0),
            None,
            session=1,
            ttl=1,
            offload=False,
            sources=False,
            make_socket=udp_socket,
            anomalies=Anomalies(MemberLogger("g", "m")),
        )
        other, own = udp_socket(socket.AF_INET), port.socket.getsockname()
        done = asyncio.Event()

        def arrived(packets: list[bytes], sources: list[Address] | None) -> bool:
            if not seen:
                other.sendto(b"meanwhile", own)
            seen.append(len(packets))
            return answers

        def over() -> None:
            seen.append("over")
            if sum(one for one in seen if isinstance(one, int)) == first + 1:
                done.set()

        for _ in range(first):
            other.sendto(b"first", own)
        port.start(asyncio.get_running_loop(), arrived, over)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        port.close()
        other.close()

    run(test())
    assert seen == expected


def test_a_full_kernel_makes_packets_wait_not_vanish(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False, offload=False) as groups:
            transport = groups[0].transport
            real, refusals = transport.port.socket, iter([True] * 3)

            class Full:
                def sendto(self, data: bytes, target: tuple[str, int]) -> int:
                    if next(refusals, False):
                        raise BlockingIOError
                    return real.sendto(data, target)

                def __getattr__(self, name: str) -> object:
                    return getattr(real, name)

            transport.port.socket = Full()  # type: ignore[assignment]
            await talk(groups)
            assert not transport.port._waiting

    run(test())


def _multicast_works() -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            membership = socket.inet_aton("239.77.1.1") + socket.inet_aton("127.0.0.1")
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return True
    except OSError:
        return False


@pytest.mark.skipif(not _multicast_works(), reason="no multicast on the loopback interface")
def test_what_goes_to_all_goes_once_by_multicast(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        settings = {"views": False, "key": bytes(16), "multicast": f"239.77.1.1:{port}", "ttl": 0, "offload": False}
        async with members(3, tmp_path, **settings) as groups:
            await talk(groups)
            counts = groups[0].status().counts
            assert counts["packets-received"] > 0
            assert counts["packets-own"] == 0, "the kernel drops what comes back to its sender"

    run(test())


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_it_works_on_uvloop(tmp_path: Path) -> None:
    import uvloop

    async def test() -> None:
        async with asyncio.timeout(LIMIT_S), members(3, tmp_path, key=os.urandom(16), stop=True) as groups:
            await talk(groups)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


_SMALL_PATH = """
import asyncio, sys
import antiphon

async def main(state: str) -> None:
    addresses = [f"127.0.0.1:{port}" for port in (7001, 7002, 7003)]
    groups = [
        antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], state=state)
        for own in addresses
    ]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    for number in range(5):
        await groups[0].send(bytes([number]) * 20_000)
    for group in groups:
        taken = 0
        async for event in group:
            if isinstance(event, antiphon.Message):
                assert event.payload == bytes([taken]) * 20_000
                taken += 1
                if taken == 5:
                    break
    counts = groups[0].status().counts
    print(counts.get("packets-too-large", 0), counts.get("packets-unsendable", 0), groups[0].transport._codec.size)
    await asyncio.gather(*(group.stop() for group in groups))

asyncio.run(asyncio.wait_for(main(sys.argv[1]), 30))
"""


@pytest.mark.parametrize("mtu", [65_536, 1_280, 576])
def test_packets_fit_the_loopback_interface(mtu: int, tmp_path: Path) -> None:
    """In a network namespace of its own, whose loopback interface may be as narrow as a tunnel; the kernel segments."""
    command = f"ip link set lo mtu {mtu} up && exec {sys.executable} - {tmp_path}"
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-n", "ip", "link"], capture_output=True).returncode
    ):
        pytest.skip("no network namespaces here")
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", command], input=_SMALL_PATH, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    too_large, unsendable, room = map(int, done.stdout.split())
    assert room + 100 > min(mtu, 1_280) - 28
    assert too_large <= 2, "once for each path"
    assert unsendable == 0


@pytest.mark.parametrize("offload", [None, False], ids=["offload", "plain"])
@pytest.mark.parametrize("fragments", [True, False])
def test_a_narrow_link_is_found_out(offload: bool | None, fragments: bool) -> None:
    async def test(world: testing.World) -> None:
        network = asyncio.get_running_loop().antiphon_host.network  # type: ignore[attr-defined]
        network.offload, network.fragments = True, fragments
        addresses = [f"10.0.0.{number}:7001" for number in (1, 2, 3)]
        groups = [
            antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], offload=offload)
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await talk(groups)
        world.link(addresses[:1], addresses[1:2], mtu=1_280)
        world.link(addresses[1:2], addresses[:1], mtu=1_280)
        await talk(groups)
        assert groups[0].status().counts["packets-too-large"] > 0

    testing.run(test)


@pytest.mark.parametrize(
    ("mtu", "six", "multicast"), [(1_500, False, False), (9_000, True, False), (9_000, False, True)]
)
def test_a_link_that_swallows_large_packets_is_found_out(mtu: int, six: bool, multicast: bool) -> None:
    """One link becomes a black hole under load, then carries everything again; the others are not held back."""

    async def test(world: testing.World) -> None:
        world.network.interface_mtu = mtu
        addresses = [f"[fd00::{number}]:7001" if six else f"10.0.0.{number}:7001" for number in (1, 2, 3)]
        way = {"multicast": "239.1.2.3:7100"} if multicast else {}
        groups = [
            antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], key=bytes(16), **way)
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        most = min(65_507, mtu - (48 if six else 28))

        async def load(seconds: float) -> float:
            until, worst = world.now + seconds, 0.0
            while world.now < until:
                began = world.now
                receipts = [await group.send(bytes(40_000)) for group in groups]
                await asyncio.gather(*(receipt.stable() for receipt in receipts))
                worst = max(worst, world.now - began)
                await asyncio.sleep(0.1)
            return worst

        async def read(group: antiphon.Group) -> None:
            async for _ in group:
                pass

        readers = [asyncio.create_task(read(group)) for group in groups]

        paths = {address: groups[0].transport._prober.path_to(parse(address, "address")) for address in addresses[1:]}
        await load(1.0)
        assert [path.size for path in paths.values()] == [most, most]
        hole = world.link(addresses[:1], addresses[1:2], mtu=1_280, silent=True)
        assert await load(4.0) < 2.5, "noticed soon"
        assert paths[addresses[1]].size <= 1_280
        assert paths[addresses[2]].size == most, "the other path is as it was"
        assert groups[0].status().counts["packets-vanished"] == 1
        hole.heal()
        await load(1.0)
        await asyncio.sleep(60)
        await load(1.0)
        assert paths[addresses[1]].size == most
        assert groups[0].status().counts["views"] == 1
        await asyncio.gather(*(group.leave() for group in groups))
        await asyncio.gather(*readers)

    testing.run(
        test, unexamined=["validity", "agreement", "fifo", "causal", "stability", "integrity", "view-synchrony"]
    )


def test_small_messages_ask_nothing_of_the_path() -> None:
    async def test(world: testing.World) -> None:
        world.network.interface_mtu = 9_000
        addresses = world.addresses(3)
        groups = [antiphon.join("g", bind=own, peers=[p for p in addresses if p != own]) for own in addresses]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        for _ in range(50):
            await asyncio.gather(*(group.send(bytes(200)) for group in groups))
            await asyncio.sleep(0.02)
        assert all(group.status().counts["packets-probing"] == 0 for group in groups)
        await asyncio.gather(*(group.leave() for group in groups))

    testing.run(test)


def test_what_a_member_left_unfinished_goes_with_it() -> None:
    async def test(world: testing.World) -> None:
        addresses = world.addresses(3)
        groups = [
            antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], ordering="fifo")
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await (await groups[1].send(b"for the record")).stable()
        codec = groups[0].transport._codec
        half = codec.encode([bytes(5_000)])[0]
        codec.decode(2, half, time.monotonic_ns())
        assert codec.waits
        await groups[2].leave()
        while len(groups[0].status().members) > 2:
            await asyncio.sleep(0.01)
        assert not codec.waits
        assert codec.broken == 0, "forgotten, not given up"
        await asyncio.gather(*(group.leave() for group in groups[:2]))

    testing.run(
        test, unexamined=["validity", "agreement", "fifo", "causal", "stability", "integrity", "view-synchrony"]
    )
