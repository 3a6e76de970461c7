"""How large packets a path carries: found out by packets that the peer acknowledges (RFC 8899), router's word or none.

A path begins with what every path carries. Once something larger is to be sent, larger packets are tried: first the
largest that the way out takes, then, if it is not acknowledged though a small one is, between what went through and
what did not. While large packets go out, one of them asks now and then to be acknowledged; if it is not, and the same
question repeated is not either though small ones are, the path has become a black hole for packets of that size, and
the search begins anew from the base. If small packets are not answered either, nothing is concluded about sizes. A
member without large packets to send asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant
from antiphon.protocol.timers import RoundTripEstimate

UDP_BYTES_MAX: Final = 65_507
PACKET_BYTES_MIN: Final = 508  # what is left where even the base does not fit the way out
MTU_BASE: Final = 1_280  # what every path is taken to carry, headers included
MTUS: Final = (1_280, 1_380, 1_400, 1_420, 1_440, 1_450, 1_460, 1_480, 1_492, 1_500, 4_352, 8_192, 9_000, 16_384)
MTU_OF_ETHERNET: Final = 1_500
UNANSWERED_MAX: Final = 4  # of a size, while small packets were answered: then it does not fit
DEAF_MAX: Final = 4  # rounds in which nothing was answered: then this says nothing about sizes
CONFIRM_NS: Final = 500 * MILLISECOND  # for so long after an acknowledgment a size is taken to fit
AFTER_SILENCE_NS: Final = SECOND
LOOK_AGAIN_NS: Final = 60 * SECOND  # paths may come to carry more
NEVER: Final[Instant] = 2**63
_GRAIN_BYTES: Final = 32  # near enough

_ROUND_TRIP_NS: Final = 500 * MILLISECOND  # until one was measured
_TIMEOUT_NS_MIN, _TIMEOUT_NS_MAX = 100 * MILLISECOND, 2 * SECOND  # a busy peer is no black hole


def headers_of(host: str) -> int:
    """Return the bytes of the IP and UDP headers of packets to an address."""
    return 48 if ":" in host else 28


class _Question(msgspec.Struct):
    """A size of which it is being found out whether it fits."""

    size: int
    round: Literal["not asked", "by data alone", "asked", "small one heard"] = "not asked"
    small: int = -1  # the number of this round's small packet
    unanswered: int = 0  # rounds in which the small packet was answered and this size was not
    deaf: int = 0  # rounds in which neither was


class PathMtu:
    """What one path carries, as packets' bytes without their headers."""

    def __init__(self, headers: int, number: Callable[[], int], vanished: Callable[[int], None]) -> None:
        """`number` draws the number of a packet that asks; `vanished` is told the size of a black hole."""
        self._headers, self._number, self._vanished = headers, number, vanished
        self.size = MTU_BASE - headers  # packets of so many bytes may be sent now
        self._too_large = UDP_BYTES_MAX + 1  # the smallest that is known not to fit
        self._round_trip = RoundTripEstimate(
            _ROUND_TRIP_NS, timeout_ns_min=_TIMEOUT_NS_MIN, timeout_ns_max=_TIMEOUT_NS_MAX
        )
        self._asked: dict[int, tuple[int, Instant]] = {}  # by number: how large a packet asked, and when
        self._question: _Question | None = None
        self.deadline: Instant | None = None  # when the present round of asking is over
        self._look_at: Instant = 0  # when larger ones may be tried next
        self._confirmed, self._confirmed_until = 0, 0  # the largest size that was acknowledged lately

    @property
    def _base(self) -> int:
        return MTU_BASE - self._headers

    # What goes out

    def may_look(self, now: Instant) -> bool:
        """Return whether it is time to try larger packets, now that there is something to put into them."""
        return self._question is None and now >= self._look_at

    def look(self, limit: int, now: Instant) -> None:
        """Try larger packets, at most of `limit` bytes, which is what the way out takes."""
        limit = max(PACKET_BYTES_MIN, min(limit, UDP_BYTES_MAX))
        self.size, self._too_large = min(self.size, limit), limit + 1
        self._try(limit, now)

    def trust(self, limit: int) -> None:
        """Assume that what the way out takes fits this path, without asking."""
        self.size, self._look_at = max(PACKET_BYTES_MIN, min(limit, UDP_BYTES_MAX)), NEVER

    def must_confirm(self, size: int, now: Instant) -> bool:
        """Return whether the next packet of this size should ask to be acknowledged."""
        if size <= self._base or self._question is not None:
            return False
        return now >= self._confirmed_until or size > self._confirmed

    def confirm(self, number: int, size: int, now: Instant) -> None:
        """Hear that a packet with data, of this size, asks under this number to be acknowledged."""
        self._asked[number] = size, now
        self._question = _Question(size, "by data alone")
        self.deadline = now + self._round_trip.timeout_ns

    def probes(self, now: Instant) -> list[tuple[int, int]]:
        """Return the number and the size of each packet that is to ask now, if a round is over."""
        if self.deadline is None or now < self.deadline:
            return []
        self._judge_round(now)
        question = self._question
        if question is None:
            return []
        question.round, question.small = "asked", self._number()
        asking = [(question.small, PACKET_BYTES_MIN), (self._number(), question.size)]
        self._asked.update({number: (size, now) for number, size in asking})
        self.deadline = now + self._round_trip.timeout_ns
        return asking

    def _judge_round(self, now: Instant) -> None:
        """Conclude what follows from a round in which the size in question was not acknowledged."""
        question = self._question
        assert question is not None
        question.unanswered += question.round == "small one heard"
        question.deaf += question.round == "asked"
        if question.unanswered >= UNANSWERED_MAX:
            self._does_not_fit(question.size, now)
        elif question.deaf >= DEAF_MAX:
            self._rest(now, AFTER_SILENCE_NS)
            self._confirmed, self._confirmed_until = UDP_BYTES_MAX, self._look_at  # ask nothing until then

    # What comes back

    def acknowledged(self, number: int, now: Instant) -> None:
        """Hear that a packet that asked has arrived."""
        size, at = self._asked.pop(number, (0, now))
        question = self._question
        if not size:
            return
        self._round_trip.measured(now - at)
        if size == PACKET_BYTES_MIN:
            if question is not None and number == question.small:
                question.round = "small one heard"
            return
        if now >= self._confirmed_until or size > self._confirmed:
            self._confirmed, self._confirmed_until = size, now + CONFIRM_NS
        if size > self.size:
            self.size, self._too_large = size, max(self._too_large, size + 1)
            self._search_on(now)
        elif question is not None and question.size <= size:
            self._question = self.deadline = None

    def refused(self, size: int, limit: int, now: Instant) -> None:
        """Hear that the way out does not take packets of this size, but, as far as it says, of `limit` bytes."""
        if not PACKET_BYTES_MIN <= limit < size:
            limit = max(PACKET_BYTES_MIN, size * 7 // 8)
        self.size, self._too_large = min(self.size, limit), min(self._too_large, limit + 1)
        if self._question is not None and self._question.size > limit:
            self._try(limit, now)

    # The search

    def _does_not_fit(self, size: int, now: Instant) -> None:
        self._too_large = min(self._too_large, size)
        if size <= self.size:
            self.size = min(self.size, self._base)
            self._asked.clear()  # an answer from before proves nothing any more
            self._vanished(size)
        self._search_on(now)

    def _search_on(self, now: Instant) -> None:
        """Try the next size between what fits and what does not, unless they are near enough."""
        low, high = self.size, self._too_large
        usual = [mtu - self._headers for mtu in MTUS if low < mtu - self._headers < high]
        ethernet = MTU_OF_ETHERNET - self._headers
        if high - low <= max(_GRAIN_BYTES, low // 32):
            self._rest(now, LOOK_AGAIN_NS)
        elif ethernet in usual:
            self._try(ethernet, now)
        else:
            self._try(usual[len(usual) // 2] if usual else (low + high) // 2, now)

    def _try(self, size: int, now: Instant) -> None:
        if size <= self.size:
            self._rest(now, LOOK_AGAIN_NS)
        else:
            self._question, self.deadline = _Question(size), now

    def _rest(self, now: Instant, pause_ns: Duration) -> None:
        """Ask nothing more, and look for larger ones only after a pause."""
        self._question = self.deadline = None
        self._asked.clear()
        self._look_at = now + pause_ns
