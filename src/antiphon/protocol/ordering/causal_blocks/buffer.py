"""Where received messages wait for their delivery, and what a full buffer gives up: priorities."""

from __future__ import annotations

from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.ordering.causal_blocks.messages import CausalBlocksOptions
from antiphon.protocol.rules import rule


class WaitingBuffer:
    """The messages that are received and not yet delivered, in a bounded number of slots."""

    def __init__(self, options: CausalBlocksOptions) -> None:
        self.waiting: dict[tuple[int, int], Entry] = {}  # by (sender, seq); what was shed and is wanted again is not
        self._places, self._discards = options.buffer, options.shed == "discard"
        self._taken = 0  # by messages that wait with their payload

    def add(self, entry: Entry) -> None:
        """Let a message wait."""
        self.waiting[entry.message.sender, entry.message.seq] = entry
        self._taken += entry.whole

    def remove(self, entry: Entry) -> None:
        """Free the slot of a message that waits no more, if it has one."""
        if self.waiting.pop((entry.message.sender, entry.message.seq), None) is not None:
            self._taken -= entry.whole

    def make_room(self, newcomer: Entry) -> None:
        """Give up the payload of one message if there are more than slots.

        It is recovered when others see that it is missing (`shed = "recover"`), or discarded in its turn.
        """
        if not self._places or self._taken <= self._places:
            return
        entry = self.victim(newcomer)
        entry.strip()
        self._taken -= 1
        if self._discards:
            entry.discard = "shed"
        else:
            del self.waiting[entry.message.sender, entry.message.seq]

    @rule("Section V, priorities; docs/protocols/causal-blocks.md, Priorities")
    def victim(self, newcomer: Entry) -> Entry:
        """Choose what a full buffer gives up: of the lowest priority, the one furthest from its delivery."""
        whole = [entry for entry in self.waiting.values() if entry.whole]
        return min([*whole, newcomer], key=lambda entry: (entry.message.priority, -entry.message.block))
