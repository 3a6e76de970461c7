"""A process' stay in one view: its member there, told of in the group's terms."""

from __future__ import annotations

import random

from antiphon.protocol.membership.views import GroupView
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View


class Stay:
    """A member of one view."""

    def __init__(
        self,
        me: int,
        view: GroupView,
        tag: int,
        config: GroupOptions,
        member_type: type[Member],
        randomness: random.Random,
        *,
        traced: bool,
    ) -> None:
        """Begin a view, whose datagrams carry the tag."""
        self.me, self.view = me, view
        translated = View(tag, view.members, view.names, view.sent_before)
        self.member = member_type(me, translated, config, randomness, traced=traced)
