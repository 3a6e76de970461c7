"""Acknowledgments that name no message but a delivery tag: the n-th message that a channel publishes is its tag n.

A broker confirms single tags or all up to one, and refuses some. Consumers acknowledge by tags as well, those of what
they were given. What cannot be told apart for certain is no acknowledgment, and a tag that cannot be is put aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

REFUSED: Final = "refused"  # the broker did not take it
OPENED: Final = "opened"  # a connection or a channel begins or ends: its tags count from 1 again
SELECTED: Final = "confirming"  # from here on a channel is confirmed what it publishes, and counts it
CONFIRMS: Final = "confirms-tag"
CONFIRMS_ALL: Final = "confirms-tags"  # up to this one
MAY_CONFIRM: Final = "may-confirm-tag"  # if it is no consumer's
MAY_CONFIRM_ALL: Final = "may-confirm-tags"
REFUSES: Final = "refuses-tag"
REFUSES_ALL: Final = "refuses-tags"
BY_TAG: Final = (CONFIRMS, CONFIRMS_ALL, MAY_CONFIRM, MAY_CONFIRM_ALL, REFUSES, REFUSES_ALL, OPENED, SELECTED)
_MANY: Final = (CONFIRMS_ALL, MAY_CONFIRM_ALL, REFUSES_ALL)
_CERTAIN: Final = (CONFIRMS, CONFIRMS_ALL)
_OPEN_MAX: Final = 100_000  # messages of a channel that nothing was said of; no broker lets so many wait
_REMEDY: Final = "the log should have the message's id here, or when its client connects"


class TaggedRow(NamedTuple):
    """What tags are told by: a row that sends, delivers, or is one of those above."""

    member: str
    channel: str | None
    what: str  # "send", "deliver", or one of BY_TAG
    id: str | None
    tag: int | None


class ChannelTags(msgspec.Struct, array_like=True):
    """One channel since it was opened."""

    published: int = 0
    waiting: dict[int, str] = {}  # tag -> message, of which the broker has said nothing yet
    delivers: bool = False
    doubtful: bool = False  # its tags do not fit what it published


class PublishedTags(msgspec.Struct, array_like=True):
    """Which message is which tag, for all channels of a run."""

    channels: dict[str, ChannelTags] = {}

    def acknowledged(self, row: TaggedRow) -> list[str]:
        """Take in the next row, and return the messages that it acknowledges; ValueError says what is wrong with it."""
        if row.what in (OPENED, SELECTED):
            self._open(row)
            return []
        if row.what in ("send", "deliver"):
            channel = self.channels.setdefault(_name(row.member, row.channel), ChannelTags())
            channel.delivers |= row.what == "deliver"
            if row.what == "send" and row.id is not None:
                _publish(channel, row.id, row.tag)
            return []
        return self._tell(row)

    def _open(self, row: TaggedRow) -> None:
        for name in [*self.channels]:
            if name == _name(row.member, row.channel) or (row.channel is None and name.startswith(f"{row.member}\0")):
                self.channels[name] = ChannelTags(delivers=row.what == SELECTED and self.channels[name].delivers)

    def _tell(self, row: TaggedRow) -> list[str]:
        channel = self._channel(row)
        certain, tag = row.what in _CERTAIN, row.tag or 0
        if not certain and (channel is None or channel.delivers or not channel.published):
            return []  # a consumer's
        if channel is None or channel.doubtful or tag > channel.published:
            published = 0 if channel is None else channel.published
            if channel is not None:
                channel.doubtful = True
            return _doubt(row, f"of which {published} publishes are known") if certain else []
        if row.what in _MANY:
            told = [one for one in channel.waiting if one <= tag or not tag]
        elif tag in channel.waiting:
            told = [tag]
        else:
            channel.doubtful = True
            return _doubt(row, "of which it was told before") if certain else []
        messages = [channel.waiting.pop(one) for one in told]
        return [] if row.what in (REFUSES, REFUSES_ALL) else messages

    def _channel(self, row: TaggedRow) -> ChannelTags | None:
        """Return the channel that a row is about; the only one that publishes, where it or those do not say which."""
        named = self.channels.get(_name(row.member, row.channel))
        if named is not None and (named.published or named.delivers):
            return named
        others = [one for name, one in self._of(row.member) if one.published and (row.channel is None or name == "")]
        return others[0] if len(others) == 1 else named

    def _of(self, member: str) -> Iterator[tuple[str, ChannelTags]]:
        for name, channel in self.channels.items():
            who, _, which = name.partition("\0")
            if who == member:
                yield which, channel


def _doubt(row: TaggedRow, why: str) -> list[str]:
    raise ValueError(f"the acknowledgment of delivery tag {row.tag} of a channel {why}: {_REMEDY}")


def _name(member: str, channel: str | None) -> str:
    return f"{member}\0{channel or ''}"


def _publish(channel: ChannelTags, message: str, tag: int | None) -> None:
    if tag is not None and tag <= channel.published:  # it says itself that the channel is another
        channel.waiting.clear()
    channel.published = channel.published + 1 if tag is None else tag
    channel.waiting[channel.published] = message
    if len(channel.waiting) > _OPEN_MAX:
        del channel.waiting[next(iter(channel.waiting))]
