"""Null messages: stamps without a message, which break a silence for as long as something is unstable."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from antiphon.protocol.machine import Duration, Instant, earliest
from antiphon.protocol.ordering.causal_blocks.delivery import Delivery
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.matrix import block_of
from antiphon.protocol.ordering.causal_blocks.messages import EARLY_MAX, CausalBlocksOptions, NullBlock
from antiphon.protocol.parts import Out, PartContext, Step
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import GrowingPause
from antiphon.protocol.wire import pack_vector

EVENNESS: Final = 8  # with `always`, a silence is shorter by up to such a part: nulls in step would collide for ever


class Silence:
    """Decides when a member says what it has, though it has no message to say it with."""

    def __init__(
        self, known: Knowledge, delivery: Delivery, options: CausalBlocksOptions, context: PartContext
    ) -> None:
        self.known, self.delivery, self.options = known, delivery, options
        self._random = context.random
        self._even_ns = options.silence_ns  # where nulls go on for ever: the present silence
        self._since: Instant = 0
        self._null_at: Instant = 0
        self._pause = GrowingPause(context.jittered, options.silence_ns, options.silence_ns_max)
        self._crowded_ns = options.crowded_ns(known.size)
        self._was_restless = options.always
        self._answer_at: dict[int, Instant] = {}  # who asked -> when; all at once would overrun the one who asked

    @property
    @rule("Section III, time-silence, mended")
    def restless(self) -> bool:
        """Say whether something is unstable here, or someone has what we lack: then we do not stay silent."""
        return self.known.held > 0 or bool(self.known.lacking) or self.options.always

    @rule("Section III, time-silence; docs/protocols/causal-blocks.md, Silence")
    def null(self, asking: bool, now: Instant) -> NullBlock:
        """Make a null: one's stamps, and which messages wait here, so that nobody sends those again."""
        known = self.known
        block, mb = known.next_block(now, answered=asking)
        early = nsmallest(EARLY_MAX, self.delivery.buffer.waiting.values(), key=block_of)
        told = block_of(early[-1]) if len(early) == EARLY_MAX else mb
        listed = [(entry.message.sender, entry.message.seq) for entry in early]
        own, stable = known.passed_seq[known.rank], known.stable_seq[known.rank]
        return NullBlock(block, mb, pack_vector(known.LDV), own, stable, asking, listed, told)

    @property
    def deadline(self) -> Instant | None:
        """When a silence is to be broken, or a question answered."""
        speak = self._speaks_at()
        return earliest(speak, *self._answer_at.values()) if self._answer_at else speak

    @rule("Section III, time-silence; docs/protocols/causal-blocks.md, Slow links")
    def pause_ns(self) -> Duration:
        """Say how long to be silent: not less than helps where news takes long, nor than many members can bear."""
        own_ns = self._even_ns if self.options.always else self._pause.ns
        return max(own_ns, self.known.trips.measured_ns // 4, self._crowded_ns)

    @rule("docs/protocols/causal-blocks.md, Silence")
    def owes(self) -> bool:
        """Say whether a sender may be waiting for word of what is delivered here."""
        return self.delivery.untold_most > self.options.window // 2

    def _speaks_at(self) -> Instant | None:
        if self.owes():
            return self._since + self.options.gathers_ns(self.known.size, several=self.delivery.is_of_several)
        return self._since + self.pause_ns() if self.restless else None

    def shorten(self) -> None:
        """Go back to the shortest silence: something has changed."""
        self._pause.renew()

    def sent_message(self, now: Instant) -> None:
        """Count a silence from the message on that was just sent; but what waits here only nulls tell."""
        if not self.delivery.buffer.waiting or now - self._null_at < 2 * self.pause_ns():
            self._spoke(now)
        self.shorten()

    def _spoke(self, now: Instant) -> None:
        self._since = now
        self.delivery.told()

    def ask(self, source: int, now: Instant) -> None:
        """Answer a null that asks, soon, unless this member will say what it has anyway."""
        if not self.restless:
            self._answer_at.setdefault(source, now + self._random.randint(0, self.options.repair_delay_ns))

    def wake(self, now: Instant, step: Step) -> None:
        """Answer, and break the silence, where it is time."""
        for source in [source for source, instant in self._answer_at.items() if instant <= now]:
            del self._answer_at[source]
            step.down.append(Out(self.null(False, now), (source,)))
        self._speak(now, step)

    def settle(self, now: Instant, step: Step) -> None:
        """Begin a silence where this member has become restless; report deliveries that senders may be waiting for."""
        restless = self.restless
        if restless and not self._was_restless:
            self._since = now  # a quiet member answers together, not at the first of several messages
            self.shorten()
        elif self._was_restless and not restless:
            self.known.trips.rest(now)
        self._was_restless = restless
        if self.owes():
            self._speak(now, step)

    def _speak(self, now: Instant, step: Step) -> None:
        speaks_at = self._speaks_at()
        if speaks_at is not None and speaks_at <= now:
            self._report(now, step)

    def _report(self, now: Instant, step: Step) -> None:
        """Tell everyone what is delivered here; with no news, the next silence is longer."""
        step.down.append(Out(self.null(self.known.held > 0 or bool(self.known.lacking), now)))
        self._spoke(now)
        self._null_at = now
        if self.options.always:
            self._even_ns = self.options.silence_ns - self._random.randint(0, self.options.silence_ns // EVENNESS)
        else:
            self._pause.grow()
