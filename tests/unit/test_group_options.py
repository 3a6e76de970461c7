"""What a group of some size can work with, at the bounds, and how parts are found by their names."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec
import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import earliest
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.options import (
    WINDOW_MAX,
    GroupOptions,
    ordering_type,
    part_name,
    profile_of,
    promises_of,
    stability_type,
)
from antiphon.protocol.ordering.fifo import Fifo
from antiphon.protocol.recovery import RecoveryOptions
from antiphon.protocol.wire import PAYLOAD_BYTES_MAX, VECTOR_ENTRIES_MAX, Pdu


def options(**given: Any) -> GroupOptions:
    return GroupOptions(**{"ordering": "fifo", **given})


@pytest.mark.parametrize(
    ("size", "given"),
    [
        (1, {}),
        (VECTOR_ENTRIES_MAX, {"window": 1, "stability": "timestamp-ack"}),
        (3, {"window": 1, "queue": 1, "payload_bytes_max": 1}),
        (3, {"window": WINDOW_MAX}),
        (3, {"payload_bytes_max": PAYLOAD_BYTES_MAX}),
        (3, {"window": 5, "buffer": 15}),
        (3, {"recovery": RecoveryOptions(nack_retry_ns=5_000_000, nack_retry_ns_max=5_000_000)}),
        (3, {"recovery": RecoveryOptions(repairs_per_nack_max=1)}),
        (3, {"recovery": RecoveryOptions(adaptive=False)}),
        (3, {"ordering": "total", "stability": "vector-ack", "safe": True}),
        (3, {"ordering": "co", "safe": True}),
        (3, {"stability_options": {"interval_ns": 10**18, "interval_ns_max": 10**18}}),
        (3, {"stability": "train", "stability_options": {"ring": [2, 0, 1]}}),
        (3, {"views": False, "membership": MembershipOptions(heartbeat_ns=0)}),
    ],
)
def test_what_lies_on_the_bound_works(size: int, given: dict[str, Any]) -> None:
    options(**given).check(size)


@pytest.mark.parametrize(
    ("size", "given", "key"),
    [
        (0, {}, "members: "),
        (VECTOR_ENTRIES_MAX + 1, {"window": 1}, "members: "),
        (3, {"window": 0}, "window: must be at least 1"),
        (3, {"queue": 0}, "queue: must be at least 1"),
        (3, {"payload_bytes_max": 0}, "payload_bytes_max: must be at least 1"),
        (3, {"window": WINDOW_MAX + 1}, "window: must be at most"),
        (3, {"payload_bytes_max": PAYLOAD_BYTES_MAX + 1}, "payload_bytes_max: at most"),
        (3, {"window": 5, "buffer": 14}, "give at least 15"),
        (
            3,
            {"recovery": RecoveryOptions(repairs_per_nack_max=0)},
            r"recovery\.repairs_per_nack_max: must be at least 1",
        ),
        (
            3,
            {"recovery": RecoveryOptions(nack_retry_ns=5_000_001, nack_retry_ns_max=5_000_000)},
            r"recovery\.nack_retry_ns_max: is below",
        ),
        (
            3,
            {"recovery": RecoveryOptions(heartbeat_ns=5_000_001, heartbeat_ns_max=5_000_000)},
            r"recovery\.heartbeat_ns_max: is below",
        ),
        (3, {"ordering": "causal-blocks", "safe": True}, "safe: causal-blocks"),
        (3, {"membership": MembershipOptions(heartbeat_ns=0)}, r"membership\.heartbeat_ns"),
        (3, {"stability": "train", "stability_options": {"positions": True}}, "stability: positions"),
        (3, {"ordering_options": {"no": 1}}, r"ordering\.no: no such option"),
        (3, {"stability": "train", "stability_options": {"ring": [2, 0]}}, "member 1 is not in it"),
        (3, {"stability_options": {"interval_ns": 10**18 + 1}}, r"stability\.interval_ns: must be at most"),
    ],
)
def test_what_cannot_work_is_refused_with_its_key(size: int, given: dict[str, Any], key: str) -> None:
    with pytest.raises(UsageError, match=key):
        options(**given).check(size)


def test_a_member_can_keep_four_windows_of_each_unless_it_is_told_otherwise() -> None:
    assert options(window=5).buffer_size(3) == 60
    assert options(window=5, buffer=17).buffer_size(3) == 17


def test_an_ordering_with_its_own_flow_control_takes_window_and_buffer_from_the_group() -> None:
    assert GroupOptions(ordering="co", window=9, buffer=200).ordering_settings().window == 9
    usual = GroupOptions(ordering="co").ordering_settings()
    assert usual.window == type(usual)().window, "its own, unless one was asked for"
    assert GroupOptions(ordering="co", window=9, ordering_options={"window": 3}).ordering_settings().window == 3


def test_what_a_group_promises_is_what_its_parts_do() -> None:
    assert options().promises() == [*promises_of(Fifo), "stability", "view-synchrony"]
    assert options(views=False).promises() == [*promises_of(Fifo), "stability"]
    blocks = GroupOptions(ordering="causal-blocks", views=False).promises()
    assert blocks == list(dict.fromkeys(promises_of(ordering_type("causal-blocks"))))


class Lacking:
    """Lacks nearly everything."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = ()


class Clash(Pdu, tag=1):
    """Has the tag of a message."""


class Clashing(Fifo):
    PDUS = (*Fifo.PDUS, Clash)


def test_a_part_is_found_by_name_by_alias_by_import_or_given() -> None:
    assert ordering_type("fifo") is Fifo
    assert ordering_type("total") is ordering_type("abcast")
    assert ordering_type("antiphon.protocol.ordering.fifo:Fifo") is Fifo
    assert ordering_type(Fifo) is Fifo
    assert part_name(Fifo) == "antiphon.protocol.ordering.fifo:Fifo"
    assert part_name("fifo") == "fifo"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fif", "did you mean fifo"),
        ("no.such.module:Class", "cannot be imported"),
        ("antiphon.protocol.ordering.fifo:No", "cannot be imported"),
        ("antiphon.protocol.options:profile_of", "is no class"),
        (Lacking, "has no Options; see antiphon.protocol.parts.Ordering"),
    ],
)
def test_what_is_no_part_is_refused_with_what_is_wrong(name: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ordering_type(name)


def test_a_stability_part_says_what_it_lacks() -> None:
    with pytest.raises(UsageError, match=r"stability: .*Fifo has no stamp"):
        stability_type(Fifo)  # type: ignore[arg-type]


def test_pdus_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="both have the tag 1"):
        options(ordering=Clashing).check(3)


def test_a_profile_is_found_by_its_name() -> None:
    assert profile_of("paper").views is False
    with pytest.raises(UsageError, match="profile: unknown 'pap'"):
        profile_of("pap")


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="is no text"):
        options(stability="timestamp-ack", stability_options={"clock": "\ud800"}).check(3)


@pytest.mark.parametrize(
    ("ordering", "given", "said"),
    [
        ("causal-blocks", {"burst": 0}, "ordering.burst: expected `int` >= 1, not 0"),
        ("causal-blocks", {"shed": "all"}, "ordering.shed: one of recover, discard, not 'all'"),
        ("co", {"window": "9"}, "ordering.window: expected `int`, got `str`"),
        ("co", {"windw": 9}, "ordering.windw: no such option (did you mean window?); its options are window, headroom"),
        ("co", {"\ud800": 1}, r"ordering.'\ud800': no such option; its options are window, headroom"),
        ("sequencer", {"window": 9}, "ordering.window: no such option; it has none"),
    ],
)
def test_an_option_that_a_part_does_not_take_is_named(ordering: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(said)}"):
        GroupOptions(ordering=ordering, ordering_options=given).check(3)


def test_the_earliest_of_several_instants_is_found_whichever_are_absent() -> None:
    assert earliest() is None
    assert earliest(None, None) is None
    assert earliest(None, 5, None, 3, 4) == 3
    assert earliest(0, 5) == 0


def test_defaults_of_a_profile_are_given_to_the_parts_that_have_them() -> None:
    wan = msgspec.structs.replace(profile_of("wan"), ordering="fifo", stability="train")
    assert wan.stability_settings().timeout_ns == 500_000_000
    given = msgspec.structs.replace(wan, stability_options={"timeout_ns": 7_000_000})
    assert given.stability_settings().timeout_ns == 7_000_000
