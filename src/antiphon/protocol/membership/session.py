"""A process' session in one view: its member there, and what becomes of it when the view ends."""

from __future__ import annotations

import random
from collections import Counter
from typing import ClassVar, Final

from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.flush import Flush
from antiphon.protocol.membership.views import GroupView
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.rules import rule
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import Codec

_SET_ASIDE_BYTES_MAX: Final = 4 << 20


class ViewSession:
    """The member of one view, which delivers while the session is active and was told to stop when it is not."""

    member_type: ClassVar[type[Member]] = Member
    flush_type: ClassVar[type[Flush]] = Flush

    def __init__(
        self,
        me: int,
        view: GroupView,
        options: GroupOptions,
        randomness: random.Random,
        codec: type[Codec],
        *,
        traced: bool,
        counts: Counter[str],
    ) -> None:
        """Begin a view; `counts` go on from those before."""
        self.view = view
        translated = View(self.tag(view), view.members, view.names, view.sent_before, codec)
        self.member = self.member_type(me, translated, options, randomness, traced=traced, counts=counts)
        self.flush: Flush | None = None  # the member was stopped: its view ends
        self.away_since: Instant | None = (
            None  # this process was away, and too few have said that the view still stands
        )
        self.left_out_since: Instant | None = None  # a quorum hears one another, and this process is not among them
        self.resumes = False  # it stalled, and enough are heard again; but what is heard may have been long on its way
        self.stalled = False  # nothing is delivered: too few are within reach, or the view cannot end
        self._set_aside: list[bytes] = []  # data that came too early to be taken
        self._set_aside_bytes = 0

    @rule("docs/membership.md, views")
    def tag(self, view: GroupView) -> int:
        """Return what every datagram of a view carries, so that it counts nowhere else."""
        return view.tag

    @property
    def active(self) -> bool:
        """Whether messages are sent and delivered now."""
        return self.flush is None and not self.stalled and self.away_since is None

    @property
    def confirmed(self) -> bool:
        """Whether this process was not away, or has heard since that the view still stands."""
        return self.away_since is None

    @rule("docs/membership.md, agreement, prepare")
    def takes_data(self) -> bool:
        """Decide whether the member takes in what others send: one that has told what it holds does not."""
        return self.active

    @rule("docs/membership.md, suspicion")
    def signs_of_life(self) -> list[tuple[int, Instant]]:
        """Return who has sent anything in this view, and when, since the last time."""
        return self.member.heard()

    def keep_for_later(self, datagram: bytes, now: Instant) -> None:
        """Keep data that cannot be taken now: of this view until it goes on, or of the next if this one ends.

        Others begin the next view a little earlier, or are in this one while it is not confirmed here; were their
        data dropped, all of it would have to be sent again.
        """
        own_view = self.member.recognize(datagram, now)
        if own_view is (self.flush is None) and self._set_aside_bytes + len(datagram) <= _SET_ASIDE_BYTES_MAX:
            self._set_aside.append(datagram)
            self._set_aside_bytes += len(datagram)

    def take_what_was_kept(self) -> list[bytes]:
        """Return the data that was kept, and keep none of it."""
        kept, self._set_aside, self._set_aside_bytes = self._set_aside, [], 0
        return kept

    def end(self, now: Instant) -> None:
        """Stop the member, for others are told what it holds."""
        self.take_what_was_kept()
        self.flush = self.flush_type(self.view, self.member, now)
