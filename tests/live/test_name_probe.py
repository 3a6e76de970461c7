"""Two members with one name: the second is told so, and the first goes on undisturbed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.errors import UsageError
from antiphon.live.session import NameProbe
from antiphon.live.sockets import udp_socket
from support.live_group import collect, free_addresses, members, run


@pytest.mark.parametrize("key", [None, os.urandom(16)], ids=["open", "sealed"])
def test_who_takes_a_members_address_for_its_own_is_refused(tmp_path: Path, key: bytes | None) -> None:
    async def test() -> None:
        addresses = free_addresses(2)
        elsewhere = free_addresses(1)[0].replace("127.0.0.1", "127.0.0.2")
        async with members(2, tmp_path, of=addresses, key=key) as groups:
            second = antiphon.join(
                "test", bind=elsewhere, address=addresses[0], peers=addresses[1:], key=key, state=tmp_path / "other"
            )
            with pytest.raises(UsageError, match="two members cannot have one name"):
                await second.__aenter__()
            receipt = await groups[0].send(b"undisturbed")
            assert [message.payload for message in await collect(groups[1], 1)] == [b"undisturbed"]
            await receipt.stable()
            assert groups[0].status().counts.get("exclusions", 0) == 0

    run(test())


def test_an_address_of_ones_own_may_be_another_than_the_one_bound_to(tmp_path: Path) -> None:
    """Nobody answers there but the member itself."""

    async def test() -> None:
        own = free_addresses(1)[0]
        async with antiphon.join(
            "test", bind=own.replace("127.0.0.1", "0.0.0.0"), address=own, state=tmp_path
        ) as group:
            await (await group.send(b"alone")).stable()

    run(test())


def test_the_command_says_so_in_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = free_addresses(2)
        elsewhere = free_addresses(1)[0].replace("127.0.0.1", "127.0.0.2")
        async with members(2, tmp_path, of=addresses):
            words = ["test", "--bind", elsewhere, "--address", addresses[0], "--peer", addresses[1]]
            words += ["--state", str(tmp_path / "other")]
            process = await antiphon_join(*words)
            assert process.returncode == 2
            assert process.stderr.count(b"\n") == 1
            assert b"two members cannot have one name" in process.stderr

    run(test())


async def antiphon_join(*words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "antiphon.cli", "join", *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)


def test_only_ones_own_question_can_be_answered() -> None:
    one, other = NameProbe(b"1" * 8, udp_socket), NameProbe(b"2" * 8, udp_socket)
    question = one.question(("127.0.0.1", 7001), ("127.0.0.1", 7001))
    assert one.hear(question, None) is None  # one's own, come back
    answer = other.hear(question, None)
    assert answer is not None
    assert answer[0] == ("127.0.0.1", 7001)
    assert other.hear(answer[1], None) is None
    assert not other.exists
    assert one.hear(answer[1], None) is None
    assert one.exists
    assert one.hear(b"antiphon/name/\xff", None) is None
