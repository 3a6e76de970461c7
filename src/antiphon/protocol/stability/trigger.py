"""The trigger: how many unstable messages to let gather before stability is asked for.

Each round of a stability protocol costs messages, so rounds should be few; but what gathers, and what is sent while a
round runs, must fit into the buffer. With a buffer of g messages, a rate of r, rounds that take f and make a share
alpha of the gathered messages stable, a round that starts with Y of them ends with (1 - alpha) Y + rf. This tends to
rf / alpha however small a threshold X is chosen, so Y comes to max(X, rf / alpha) and the buffer to rf more than that.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import SECOND, Duration, Instant

_NEW_SHARE: Final = 0.25  # how much a new measurement counts against the old ones


class Load(msgspec.Struct, frozen=True):
    """What a member has to bear: its buffer g, its rate r, the length f of a round, the share alpha it makes stable.

    >>> load = Load(buffer=100, rate_per_s=1000, round_s=0.02)
    >>> load.threshold(), load.peak(80), load.peak(81)
    (80, 100.0, 101.0)
    """

    buffer: float
    rate_per_s: float
    round_s: float
    stable_share: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("buffer", self.buffer), ("rate", self.rate_per_s)):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"trigger: the {name} must be above 0, not {value:g}")
        if not (math.isfinite(self.round_s) and self.round_s >= 0):
            raise UsageError(f"trigger: a round cannot take {self.round_s:g} s; give 0 or more")
        if not 0 <= self.stable_share <= 1:
            raise UsageError(f"trigger: alpha is a share from 0 to 1, not {self.stable_share:g}")

    @property
    def sent_in_a_round(self) -> float:
        """The paper's rf: messages that a member sends while a round runs."""
        return self.rate_per_s * self.round_s

    def gathered(self, threshold: float) -> float:
        """Give the number of messages with which rounds start in the long run."""
        if self.stable_share == 0:
            return math.inf
        return max(threshold, self.sent_in_a_round / self.stable_share)

    def peak(self, threshold: float) -> float:
        """Give the most messages that the buffer ever has to hold."""
        return self.gathered(threshold) + self.sent_in_a_round

    def refusal(self) -> str | None:
        """Say why no threshold survives, or None where one does."""
        rf, alpha = self.sent_in_a_round, self.stable_share
        if alpha * (self.buffer - rf) >= rf and self.buffer - rf >= 1:
            return None
        needed = f"a buffer of at least {math.ceil(max(rf + rf / alpha, rf + 1))}" if alpha else "a round that frees"
        return (
            f"trigger: no threshold survives: {rf:.6g} messages are sent during a round, which frees at most "
            f"{max(0.0, alpha * (self.buffer - rf)):.6g} of the {self.buffer:g} that the buffer holds; "
            f"it takes {needed}, a lower rate or a faster protocol"
        )

    def threshold(self) -> int:
        """Give the largest sustainable X, g - rf: the fewest rounds that never overrun the buffer."""
        refusal = self.refusal()
        if refusal is not None:
            raise UsageError(refusal)
        return math.floor(self.buffer - self.sent_in_a_round)

    def time_to_stable_s(self, threshold: float) -> float:
        """Predict the mean time from sending a message to the end of the round that declares it stable."""
        return self.round_s + (1 - self.stable_share / 2) * self.gathered(threshold) / self.rate_per_s


class BufferTrigger:
    """The trigger in use: it measures r, f and alpha as rounds go by, and sets X by them.

    What is sent at last would wait for ever to be enough, so a round starts after `idle_ns` in any case. Where no
    threshold survives, rounds follow one another without a pause and `refusal` says why the sender is held up.
    """

    def __init__(self, buffer: int, idle_ns: Duration) -> None:
        self._buffer, self._idle_ns = buffer, idle_ns
        self.threshold = max(1, buffer // 2)  # a guess, until a round was measured
        self.refusal: str | None = None
        self.round_ns: float | None = None
        self.rate_per_s: float | None = None
        self.stable_share: float | None = None
        self._waiting_since: Instant | None = None
        self._began: tuple[Instant, int, int] | None = None  # the running round: when, and what was sent and stable
        self._counted_from: tuple[Instant, int] | None = None  # the rate is counted from this instant and number

    @property
    def deadline(self) -> Instant | None:
        """When what has gathered must no longer wait."""
        return None if self._waiting_since is None else self._waiting_since + self._idle_ns

    @property
    def running(self) -> bool:
        """Whether a round that was started has not ended."""
        return self._began is not None

    def start(self, sent: int, stable: int, now: Instant, *, others: bool = False) -> bool:
        """Say whether a round shall start now, with so many of one's own messages sent and stable so far.

        With `others`, there are unstable messages of other members, which must not wait for ever either.
        """
        if self._counted_from is None:
            self._counted_from = (now, sent)
        if self.running or not (others or sent > stable):
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        if sent - stable < self.threshold and now < self._waiting_since + self._idle_ns:
            return False
        self._waiting_since, self._began = None, (now, sent, stable)
        counted_at, counted = self._counted_from
        if now > counted_at and sent > counted:
            self.rate_per_s = _smooth(self.rate_per_s, (sent - counted) * SECOND / (now - counted_at))
            self._counted_from = (now, sent)
        return True

    def end(self, stable: int, now: Instant) -> None:
        """Hear that the running round has ended, with so many of one's own messages stable so far."""
        if self._began is None:
            return
        began, sent, stable_before = self._began
        self._began = None
        if sent == stable_before:
            return  # a round for the sake of others says nothing of one's own
        self.round_ns = _smooth(self.round_ns, now - began)
        self.stable_share = _smooth(self.stable_share, min(1.0, (stable - stable_before) / (sent - stable_before)))
        if self.rate_per_s is not None:
            load = self.load()
            self.refusal = load.refusal()
            self.threshold = 1 if self.refusal else load.threshold()

    def load(self) -> Load:
        """Give what was measured."""
        assert self.rate_per_s is not None, "the rate is known from the second round on"
        return Load(self._buffer, self.rate_per_s, (self.round_ns or 0) / SECOND, self.stable_share or 0.0)


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else (1 - _NEW_SHARE) * old + _NEW_SHARE * new
