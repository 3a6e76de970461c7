"""Every argument of every public call is checked where it enters, and what is wrong is named."""

from __future__ import annotations

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import antiphon
from antiphon.live.arguments import conforms
from antiphon.live.settings import Settings
from antiphon.protocol.membership.options import MembershipOptions
from support.live_group import collect, free_addresses, members, run

BIND = "127.0.0.1:7001"


@pytest.mark.parametrize("name", [name for name in Settings.__struct_fields__ if name != "group"])
def test_join_names_an_argument_of_a_wrong_type(name: str) -> None:
    with pytest.raises(antiphon.UsageTypeError, match=f"^{name}: must be ") as caught:
        antiphon.join("g", **{"bind": BIND, name: object()})
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, antiphon.UsageError)


ODD: list[Any] = [
    *(None, True, 0, -1, 1 << 70, 0.5, float("nan"), float("inf")),
    *("", "x", "\0", "127.0.0.1", "127.0.0.1:99999", "host:-1", ":7001", "[::1]:7001", "239.1.2.3:7", "é:1"),
    *(b"", b"x", bytes(16), bytearray(16), [], [""], ["127.0.0.1:7002"] * 2, [None], (), {}, {"x": 1}, {1: 2}),
    *(object(), print, int, Exception, Path("x")),
]


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_join_takes_a_value_or_names_the_argument(name: str) -> None:
    said = []
    for value in ODD:
        settings = {"group": "g", "bind": BIND, name: value}
        try:
            antiphon.join(settings.pop("group"), **settings)
        except antiphon.UsageError as error:
            said.append(str(error))
    assert all(name.removesuffix("_options") in words for words in said)
    assert said


@pytest.mark.parametrize("name", MembershipOptions.__struct_fields__)
def test_join_names_an_option_of_views_of_a_wrong_type(name: str) -> None:
    """Most of them were once taken, and failed in the middle of a view change."""
    may_be_none = conforms(None, get_type_hints(MembershipOptions)[name])  # a time that is found by measuring
    for value in (
        "x",
        0.5,
        float("nan"),
        [],
        b"x",
        True if name != "transfer" else 1,
        *([] if may_be_none else [None]),
    ):
        with pytest.raises(antiphon.UsageError, match=f"^membership.{name}: "):
            antiphon.join("g", bind=BIND, membership=MembershipOptions(**{name: value}))


async def forever() -> None: ...


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": "x"}, "partition: 'x' is none of 'majority', 'each-side'"),
        ({"slow": "x"}, "slow: 'x' is none of 'block', 'drop', 'lag'"),
        ({"window": "9"}, r"window: must be int, not str \('9'\)"),
        ({"window": True}, r"window: must be int, not bool \(True\)"),
        ({"window": 0}, "window: must be at least 1, not 0"),
        ({"leave_s": -1}, "leave_s: must be at least 0, not -1"),
        ({"leave_s": float("nan")}, "leave_s: must be a number, not float"),
        ({"ttl": 256}, "ttl: must be between 0 and 255, not 256"),
        ({"message_bytes_max": 1 << 40}, "message_bytes_max: must be between 1 and"),
        ({"peers": "127.0.0.1:7002"}, "peers: must be a sequence of str, not str"),
        ({"peers": [7002]}, "peers: must be a sequence of str, not list"),
        ({"ordering": "x"}, "ordering: unknown 'x'"),
        ({"ordering_options": {"x": 1}}, r"ordering\.x: no such option"),
        ({"key": "0123456789abcdef"}, "key: must be bytes or a sequence of bytes or None, not str"),
        ({"key": ["x"]}, "key: must be bytes"),
        ({"key": []}, "key: give at least one"),
        ({"metrics": forever}, "metrics: must be a function, not a coroutine function"),
        ({"multicast": "nowhere"}, "multicast: 'nowhere' is no address"),
        ({"status_at": "nowhere"}, "status_at: 'nowhere' is no address"),
        ({"snapshot": bytes}, "snapshot, restore: one without the other"),
        ({"windows": 9}, "join: Unexpected keyword argument 'windows' .did you mean window.*; its"),
    ],
)
def test_join_says_what_is_wrong(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(antiphon.UsageError, match=f"^{message}"):
        antiphon.join("g", **{"bind": BIND, **settings})


def test_folders_may_be_given_as_text(tmp_path: Path) -> None:
    async def test() -> None:
        own = free_addresses(1)[0]
        async with antiphon.join("g", bind=own, state=str(tmp_path / "s"), trace=str(tmp_path / "t")) as group:
            await (await group.send(b"x")).stable()
        assert list((tmp_path / "t").glob("*.parquet"))
        assert list((tmp_path / "s").iterdir())

    run(test())


@pytest.mark.parametrize(
    ("payload", "keywords", "message"),
    [
        ("text", {}, "payload: must be bytes, not str; encode it"),
        (7, {}, "payload: must be bytes, not int"),
        (None, {}, "payload: must be bytes, not NoneType"),
        (b"x", {"lifetime_s": "1"}, "lifetime_s: must be a number or None, not str"),
        (b"x", {"lifetime_s": float("inf")}, "lifetime_s: must be a number or None, not float"),
        (b"x", {"lifetime_s": 0}, "lifetime_s: must be more than 0, not 0"),
        (b"x", {"priority": "1"}, "priority: must be int, not str"),
        (b"x", {"priority": None}, "priority: must be int, not NoneType"),
        (b"x", {"priority": 2}, "lifetime_s, priority: total has neither"),
        (b"x", {"lifetime_s": 1.5}, "lifetime_s, priority: total has neither"),
    ],
)
def test_send_refuses_and_nothing_else_is_lost(
    tmp_path: Path, payload: Any, keywords: dict[str, Any], message: str
) -> None:
    """A text in a burst once destroyed every message of it, at every member."""

    async def test() -> None:
        async with members(2, tmp_path, views=False) as groups:
            await groups[0].send(b"before")
            with pytest.raises(antiphon.UsageError, match=f"^{message}"):
                await groups[0].send(payload, **keywords)
            receipt = await groups[0].send(b"after")
            assert [event.payload for event in await collect(groups[1], 2)] == [b"before", b"after"]
            await receipt.stable()

    run(test())


class Text(str):
    """Text of an application's own kind."""


class Number(int):
    """A number of an application's own kind."""


class Named(StrEnum):
    """Texts that have names."""

    GROUP = "test"
    ORDERING = "causal-blocks"


def test_texts_and_numbers_may_be_of_kinds_of_their_own(tmp_path: Path) -> None:
    """They once ended a member that was to write them down, or made a group of another name of it."""

    async def test() -> None:
        one, other = free_addresses(2)
        theirs = antiphon.join("test", bind=other, peers=[one], ordering="causal-blocks", state=tmp_path, leave_s=0.5)
        ours = antiphon.join(
            Named.GROUP,
            bind=Text(one),
            peers=[Text(other)],
            ordering=Named.ORDERING,
            partition=Text("majority"),
            window=Number(64),
            state=tmp_path,
            leave_s=0.5,
        )
        await asyncio.gather(theirs.__aenter__(), ours.__aenter__())
        await (await ours.send(b"x", priority=Number(1))).stable()
        assert (ours.status().group, ours.status().me) == ("test", one)
        await asyncio.gather(theirs.leave(), ours.leave())

    run(test())


class Kind(bytes):
    """Bytes of an application's own kind."""

    def __bytes__(self) -> bytes:
        return b"something else"


def test_a_payload_may_be_of_a_kind_of_bytes_of_its_own(tmp_path: Path) -> None:
    """It once destroyed every message of its burst, and their receipts never ended."""

    async def test() -> None:
        async with members(2, tmp_path, views=False) as groups:
            await groups[0].send(b"before")
            receipt = await groups[0].send(Kind(b"own"))
            await groups[0].send_many([memoryview(b"a-b-c")[::2], bytearray(b"more"), Kind(b"last")])
            payloads = [event.payload for event in await collect(groups[1], 5)]
            assert payloads == [b"before", b"own", b"abc", b"more", b"last"]
            await receipt.stable()

    run(test())


@pytest.mark.parametrize("payloads", ["text", b"bytes", 7, ["text"], [b"good", 7]])
def test_send_many_refuses_before_it_sends_any(tmp_path: Path, payloads: Any) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False) as groups:
            with pytest.raises(antiphon.UsageTypeError, match=r"^payloads?: must be"):
                await groups[0].send_many(payloads)
            await groups[0].send_many([bytearray(b"one"), memoryview(b"two")])
            assert [event.payload for event in await collect(groups[1], 2)] == [b"one", b"two"]

    run(test())


@pytest.mark.parametrize(("key", "message"), [("0" * 16, "not str"), (b"short", "not 5 bytes"), (None, "not NoneType")])
def test_set_keys_refuses_and_the_old_keys_stay(tmp_path: Path, key: Any, message: str) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False, key=os.urandom(16)) as groups:
            with pytest.raises(antiphon.UsageError, match=f"^key: 16, 24 or 32 random bytes .*{message}"):
                groups[0].set_keys(os.urandom(16), key)
            await (await groups[0].send(b"still heard")).stable()

    run(test())


def test_calls_before_the_group_is_entered_say_so() -> None:
    async def test() -> None:
        group = antiphon.join("g", bind=BIND)
        for call in (group.status, group.__aiter__, group.batches, lambda: group.set_keys(bytes(16))):
            with pytest.raises(antiphon.UsageError, match="was not entered yet"):
                call()
        for coroutine in (group.send(b"x"), group.leave(), group.stop(), group.send_many([b"x"])):
            with pytest.raises(antiphon.UsageError, match="was not entered yet"):
                await coroutine

    run(test())


def test_the_defaults_are_of_their_own_types() -> None:
    made = Settings("g", bind=BIND)
    assert all(conforms(getattr(made, name), hint) for name, hint in get_type_hints(Settings).items())
