"""The operator's way out: those who decide are gone for good, and one that is left goes on."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import antiphon
from antiphon.errors import UsageError
from antiphon.live.host import ThisHost
from antiphon.live.rescue import is_running, kept_in, rescued
from antiphon.live.storage import FORMAT, KeptState, StateFolder, read_kept
from antiphon.protocol.membership.process import MembershipOptions, Process, Saved
from antiphon.protocol.membership.views import NO_BALLOT, before_the_first
from antiphon.protocol.options import GroupOptions
from support.live_group import free_addresses, run


def rescue(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon", "rescue", *map(str, words)], capture_output=True, text=True, timeout=60
    )


def test_a_group_whose_majority_is_gone_goes_on_with_who_is_left(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = sorted(free_addresses(5))

        def joined(own: str) -> antiphon.Group:
            peers = [peer for peer in addresses if peer != own]
            return antiphon.join("orders", bind=own, peers=peers, state=tmp_path / own)

        groups = [joined(own) for own in addresses]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        while any(len(group.status().members) < 5 for group in groups):
            await asyncio.sleep(0.02)
        await asyncio.gather(*(group.stop() for group in groups[:3]))  # gone for good
        left = groups[4]
        while left.status().standing != "stalled":
            await asyncio.sleep(0.02)
        await groups[3].stop()
        folder = tmp_path / addresses[3]
        shown = await asyncio.to_thread(rescue, folder)
        assert f"group orders, member {addresses[3]}, view " in shown.stdout
        tried = await asyncio.to_thread(rescue, folder, "--member", addresses[3])
        assert "nothing was done" in tried.stdout
        running = await asyncio.to_thread(rescue, tmp_path / addresses[4], "--member", addresses[4], "--yes")
        assert (running.returncode, running.stdout) == (2, "")
        assert "its address is in use; stop the member first" in running.stderr
        done = await asyncio.to_thread(rescue, folder, "--member", addresses[3], "--yes")
        assert done.returncode == 0
        assert "goes on alone, without " in done.stdout
        (file,) = folder.glob("*.state")
        written = file.read_bytes()
        again = await asyncio.to_thread(rescue, folder, "--member", addresses[3], "--yes")
        assert again.returncode == 0
        assert " and decides\nnothing was done: start it" in again.stdout
        assert file.read_bytes() == written
        async with joined(addresses[3]) as alone:
            while set(left.status().members) != set(addresses[3:]) or set(alone.status().members) != set(addresses[3:]):
                await asyncio.sleep(0.02)
            await (await left.send(b"on we go")).stable()
            assert alone.status().view > 1_000
        await left.leave()

    run(test())


def test_whether_a_member_runs_is_known_whatever_its_name_is(tmp_path: Path) -> None:
    async def test() -> None:
        (own,) = free_addresses(1)
        async with antiphon.join("orders", bind=own, discover="peers", members=1, name="orders-0", state=tmp_path):
            (one,) = kept_in(tmp_path)
            assert one.state.member == "orders-0"
            assert is_running(one.state)
        (one,) = kept_in(tmp_path)
        assert not is_running(one.state)

    run(test())


def kept(number: int = FORMAT, saved: bytes = b"") -> bytes:
    about = KeptState(antiphon=number, group="orders", member="a:1", names={0: "a:1"}, saved=saved)
    return msgspec.msgpack.encode(about)


def test_state_of_a_future_format_is_refused_in_one_line(tmp_path: Path) -> None:
    assert isinstance(read_kept(tmp_path, kept()), KeptState)
    with pytest.raises(UsageError, match="was written by a newer Antiphon"):
        read_kept(tmp_path, kept(FORMAT + 1))
    with pytest.raises(UsageError, match="is damaged"):
        read_kept(tmp_path, b"\x01nonsense")
    (tmp_path / "x.state").write_bytes(kept(FORMAT + 1))
    done = rescue(tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_state_of_the_first_release_is_read(tmp_path: Path) -> None:
    """What 0.1.0 wrote for the member 127.0.0.1:7951 of the group `orders`, alone in its first view."""
    written = "950195019201009100910000920000c0939200920000950192010091009100009391009100c40190"
    (tmp_path / "e76112e0eaf513cd.state").write_bytes(bytes.fromhex(written))
    file = StateFolder(ThisHost(), tmp_path, "orders").member(["127.0.0.1:7951"], 0)
    assert file.knows_view
    saved = msgspec.msgpack.decode(file.read() or b"", type=Saved)
    assert (saved.incarnation, saved.view.number, saved.view.members) == (1, 1, (0,))
    assert Process(0, [0], GroupOptions(), MembershipOptions(), random.Random(1), 0, file.read()).id == 10_000


def test_who_was_never_in_a_view_cannot_be_chosen(tmp_path: Path) -> None:
    assert not list(kept_in(tmp_path))
    assert rescue(tmp_path / "nowhere").returncode == 2
    done = rescue(tmp_path)
    assert done.returncode == 2
    assert "no member's state is there" in done.stderr
    saved = msgspec.msgpack.encode(Saved(1, before_the_first([0]), NO_BALLOT, None, None))
    (tmp_path / "x.state").write_bytes(kept(saved=saved))
    (one,) = kept_in(tmp_path)
    with pytest.raises(UsageError, match="has never been in a view"):
        rescued(one)


def test_what_is_kept_as_json_and_a_name_that_is_not_there(tmp_path: Path) -> None:
    """A mistyped name ends with an error that says which there are, whether or not anything was to be done."""
    saved = msgspec.msgpack.encode(Saved(1, before_the_first([0]), NO_BALLOT, None, None))
    (tmp_path / "x.state").write_bytes(kept(saved=saved))
    assert json.loads(rescue(tmp_path, "--json").stdout) == {
        "kept": [{"group": "orders", "member": "a:1", "view": 0, "members": ["a:1"]}]
    }
    for words in ((), ("--yes",)):
        done = rescue(tmp_path, "--member", "b:1", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--member b:1: no such member; there is group orders, member a:1" in done.stderr
    assert rescue(tmp_path, "--yes").returncode == 2
    assert (tmp_path / "x.state").read_bytes() == kept(saved=saved)
