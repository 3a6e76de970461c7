"""What releases left, frozen: packets on the wire, traces, state folders. Each is read as it was, or refused in a line.

`tests/data/wire` has packets of each version, `tests/data/releases` a small run of each release: three members in
total order, twelve messages and a large one, a member that leaves before the others. The last is this
release, as it is until it is published.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import testing
from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.live.handshake import CHALLENGE, Challenge, Description, Response
from antiphon.live.hello import Seal
from antiphon.live.packets import PacketCodec
from antiphon.live.rescue import kept_in
from antiphon.live.session import PlainSession, Refused, SealedSession, Unproven
from antiphon.live.slots import content_of
from antiphon.live.storage import KeptState, read_kept, saved_in
from antiphon.trace.naive import check
from antiphon.trace.reader import read
from support.packet_captures import ADDED, COOKIE, DATAGRAMS, GROUP, HELLO, KEY, SENDER, SESSION, capture

DATA = Path(__file__).parents[1] / "data"
RELEASES = sorted(folder.name for folder in (DATA / "releases").iterdir())
SECOND: dict[str, dict[str, str]] = msgspec.json.decode((DATA / "wire" / "version-2-packets.json").read_bytes())
FIRST: dict[str, list[str]] = msgspec.json.decode((DATA / "wire" / "version-1-packets.json").read_bytes())


def receivers() -> dict[str, PlainSession | SealedSession]:
    return {"plain": PlainSession(1), "sealed": SealedSession(GROUP, 1, [KEY])}


# Packets


def test_packets_are_written_as_they_were() -> None:
    assert capture() == SECOND


@pytest.mark.parametrize("form", ["plain", "sealed"])
@pytest.mark.parametrize("name", [name for name in SECOND if name != "hello"])
def test_a_packet_means_what_it_meant(name: str, form: str) -> None:
    packet, body = bytes.fromhex(SECOND[name][form]), bytes.fromhex(SECOND[name]["body"])
    session = receivers()[form]
    with pytest.raises(Unproven) as met:
        session.open(packet)
    assert (met.value.sender, met.value.session, met.value.body) == (SENDER, SESSION, body)
    session.accept(SENDER, SESSION, -1)
    assert session.open(packet) == (SENDER, body)


def test_bodies_mean_what_they_meant() -> None:
    body = {name: bytes.fromhex(one["body"]) for name, one in SECOND.items() if "body" in one}
    codec = PacketCodec(500, random.Random(2))
    assert codec.decode(SENDER, body["whole"], 0) == (DATAGRAMS[0],)
    assert codec.decode(SENDER, body["several"], 0) == [*DATAGRAMS[:2]]
    fragments = [body[name] for name in body if name.startswith("fragment")]
    whole = [datagram for fragment in fragments for datagram in codec.decode(SENDER, fragment, 0)]
    assert whole == [DATAGRAMS[2]]
    assert codec.decode(SENDER, body["probe with data"][5:], 0) == (DATAGRAMS[0],)
    assert codec.broken == 0
    assert body["challenge"][0] == CHALLENGE
    assert msgspec.msgpack.decode(body["challenge"][1:], type=Challenge) == Challenge(SESSION, COOKIE)
    response = msgspec.msgpack.decode(body["response"][1:], type=Response)
    assert response.cookie == COOKIE
    assert Description({"group": GROUP, **ADDED[0]}, ADDED[1]).differences(response) == ""
    assert "safe: False here and True there" in Description({"group": GROUP, "safe": False}).differences(response)
    assert Seal(GROUP, None).open(bytes.fromhex(SECOND["hello"]["plain"])) == HELLO


@pytest.mark.parametrize("form", ["plain", "sealed"])
@pytest.mark.parametrize("here", ["plain", "sealed"])
def test_packets_of_the_first_release_are_refused_with_the_reason(form: str, here: str) -> None:
    assert len(FIRST[form]) > 5
    for packet in FIRST[form]:
        with pytest.raises(Refused) as refused:
            receivers()[here].open(bytes.fromhex(packet))
        assert refused.value.reason == "other-version"
        assert refused.value.about == "wire: version 2 here and version 1 (Antiphon 0.1.0) there"


# Traces


def test_this_release_has_a_trace_and_a_state_folder_that_say_so() -> None:
    said = json.loads((DATA / "releases" / antiphon.__version__ / "trace" / "run.json").read_text())
    assert said["versions"]["antiphon"] == antiphon.__version__ == RELEASES[-1]


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_s_trace_is_read_and_judged(release: str) -> None:
    trace = read(DATA / "releases" / release / "trace")
    assert not trace.unreadable
    delivered = dict.fromkeys((event.member for event in trace.events), 0)
    for event in trace.events:
        delivered[event.member] += event.event == "deliver"
    assert sorted(delivered.values()) == [13, 13, 13]
    assert trace.promised is not None
    verdicts = check(trace.events)
    for guarantee in trace.promised - {"validity"}:  # every member left in the end
        assert verdicts[guarantee].verdict == "holds", guarantee


# State folders


def addresses_of(release: str) -> list[str]:
    """Return where the members of a captured run were, as its state folder or its traces' names say."""
    listed: list[str] = json.loads((DATA / "releases" / release / "addresses.json").read_text())
    return listed


@pytest.mark.parametrize("release", RELEASES)
def test_members_go_on_from_a_release_s_state_folder(release: str) -> None:
    """Each comes back in its next incarnation, and the group in a view after the last that anyone was in."""
    folder = Path("/captured")
    captured = (DATA / "releases" / release / "state").iterdir()
    files = {folder / path.name: content_of(path.read_bytes()) for path in captured}
    before = max(saved_in(path, read_kept(path, content)).view.number for path, content in files.items())

    async def test(world: testing.World) -> None:
        world.disk.replace(folder, files)
        addresses = addresses_of(release)
        groups = [
            antiphon.join("captured", bind=own, peers=[peer for peer in addresses if peer != own], state=folder)
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await (await groups[0].send(b"on we go")).stable()
        assert all(group.status().view > before for group in groups)
        written = world.disk.files(folder)
        assert written.keys() == files.keys(), "no name began anew"
        for path, content in written.items():
            kept = read_kept(path, content)
            assert isinstance(kept, KeptState)
            assert saved_in(path, kept).incarnation >= 2
        await asyncio.gather(*(group.leave() for group in groups))

    testing.run(test)


def copied(release: str, folder: Path) -> Path:
    return shutil.copytree(DATA / "releases" / release / "state", folder / release)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("damage", ["cut", "emptied", "overwritten"])
def test_a_damaged_state_file_is_refused_in_one_line(
    release: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(release, tmp_path)
    for path in folder.iterdir():
        content = path.read_bytes()
        path.write_bytes({"cut": content[:-20], "emptied": b"", "overwritten": b"\x95" + bytes(len(content))}[damage])

    async def join() -> None:
        own, *others = addresses_of(release)
        async with antiphon.join("captured", bind=own, peers=others, state=folder):
            raise AssertionError

    with pytest.raises(UsageError, match="is damaged, or of another program; name a folder of your own"):
        asyncio.run(join())
    assert main(["rescue", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "is damaged" in said
    assert len(said.splitlines()) == 1


def test_damage_inside_a_state_file_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = copied(antiphon.__version__, tmp_path)
    path = next(folder.iterdir())
    kept = read_kept(path, content_of(path.read_bytes()))
    assert isinstance(kept, KeptState)
    path.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(kept, saved=kept.saved[:10])))
    with pytest.raises(UsageError, match="is damaged"):
        list(kept_in(folder))


def test_rescue_says_what_to_do_with_the_first_release_s_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescue", str(copied("0.1.0", tmp_path))]) == 2
    said = capsys.readouterr().err
    assert "was written by Antiphon 0.1.0 and does not say whose it is: start its member once" in said
    assert len(said.splitlines()) == 1


def test_one_start_with_this_release_makes_the_first_release_s_state_rescuable(tmp_path: Path) -> None:
    """What the line above advises: no other member is there, and the file says afterwards whose it is."""
    folder = copied("0.1.0", tmp_path)
    old = {path.name: path.read_bytes() for path in folder.iterdir()}

    async def test(world: testing.World) -> dict[str, Any]:
        world.disk.replace(folder, {folder / name: content for name, content in old.items()})
        *others, own = addresses_of("0.1.0")  # who left first cannot go on without the others
        group = antiphon.join("captured", bind=own, peers=others, state=folder)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await group.__aenter__()
        return {path.name: content for path, content in world.disk.files(folder).items()}

    new = testing.run(test, unexamined=["validity"])
    (changed,) = [name for name in new if new[name] != old[name]]
    for name in old.keys() - {changed}:
        (folder / name).unlink()
    (folder / changed).write_bytes(new[changed])
    (one,) = kept_in(folder)
    assert one.state.member == addresses_of("0.1.0")[-1]
    assert one.saved.view.number > 0
