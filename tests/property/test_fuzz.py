"""Bad datagrams are normal: they are dropped and counted, change nothing and raise nothing."""

from __future__ import annotations

import pytest

from antiphon.protocol.machine import Drop, Receive
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.wire import Codec
from support.fuzz import busy_group, forged, garbage, snapshot

GARBAGE = 100_000
FORGED = 5_000
NOW = 1_000_000_000


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_garbage_changes_no_state_and_raises_nothing(ordering: str) -> None:
    members, said = busy_group(ordering, seed=1)
    target = members[0]
    before, dropped = snapshot(target), 0
    for datagram in garbage(said, seed=2, count=GARBAGE):
        effects = target.handle(Receive(datagram), NOW)
        assert len(effects) == 1
        assert isinstance(effects[0], Drop)
        dropped += 1
    assert snapshot(target) == before
    assert sum(count for name, count in target.counts.items() if name.startswith("dropped-")) >= dropped == GARBAGE


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_absurd_contents_raise_nothing_and_do_not_fill_the_buffers(ordering: str) -> None:
    members, said = busy_group(ordering, seed=3)
    target = members[0]
    said = [datagram for datagram in said if Codec(target.handlers).decode(datagram)[0].sender != 0]
    for datagram in forged(target, said, seed=4, count=FORGED):
        target.handle(Receive(datagram), NOW)
    assert target.held <= 2 * target.config.buffer_size(len(members))
