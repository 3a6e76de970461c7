"""Pairwise connections: who must acknowledge whom, agreed between one sender and one receiver at a time.

Timestamp acknowledgments are right only if a sender counts no receiver that does not wait for its stamps: one scalar
does not say whose messages gave rise to it. The rules keep the two sides in step without any further agreement:

- A receiver opens a connection with an acknowledgment, counts the sender from then on, and takes that acknowledgment
  for the stamp that it has heard last from it: its acknowledgments cannot rise until the sender is really heard.
- A sender counts the receiver from the first message on whose stamp is above that acknowledgment. The receiver would
  ignore a lower one, as if it had been received before.
- Either side ends a connection at once, and the other when it notices.

Every connection has an incarnation, which rises with each new one between the same two and also when one of them starts
anew. Messages and acknowledgments carry it, and those of another incarnation count for nothing: not an earlier
connection's, and not what a receiver said to somebody else.

What pairs cannot give: a message that was lost when a connection ended, or sent before it began, is declared stable
once later acknowledgments pass it; what is stable for its sender need not be so for third parties; and a sender that
connects and stays silent holds back a receiver's acknowledgments to everyone. Views close these gaps.
"""

from __future__ import annotations

import msgspec


class Link(msgspec.Struct):
    """One connection, seen from either of its ends."""

    incarnation: int
    stamp: int  # at a sender: acknowledged by the other side; at a receiver: heard from it


class SenderSide:
    """Decides which receivers a sender's messages must reach, and which messages have reached them all."""

    def __init__(self) -> None:
        self.candidates: dict[int, Link] = {}  # they have opened a connection; no message has joined them yet
        self.receivers: dict[int, Link] = {}
        self._ended: dict[int, int] = {}  # receiver -> the highest incarnation that has ended

    def acknowledged(self, receiver: int, incarnation: int, stamp: int) -> None:
        """Take an acknowledgment; the first of an incarnation opens it, and ends an earlier one."""
        if incarnation <= self._ended.get(receiver, 0):
            return
        link = self.link(receiver)
        if link is not None and link.incarnation < incarnation:
            self.closed(receiver, link.incarnation)
            link = None
        if link is None:
            self.candidates[receiver] = Link(incarnation, stamp)
        elif link.incarnation == incarnation:
            link.stamp = max(link.stamp, stamp)

    def send(self, stamp: int) -> None:
        """Send a message on all open channels: count the receivers that will wait for it from now on."""
        for receiver, link in list(self.candidates.items()):
            if self.joins(link, stamp):
                self.receivers[receiver] = self.candidates.pop(receiver)

    def closed(self, receiver: int, incarnation: int) -> None:
        """End a connection, or hear that it has ended."""
        self._ended[receiver] = max(incarnation, self._ended.get(receiver, 0))
        for links in (self.candidates, self.receivers):
            if receiver in links and links[receiver].incarnation <= incarnation:
                del links[receiver]

    def stable(self, stamp: int) -> bool:
        """Whether all that are counted have acknowledged a message."""
        return all(link.stamp >= stamp for link in self.receivers.values())

    def link(self, receiver: int) -> Link | None:
        """Give the connection with a receiver, if there is one."""
        return self.receivers.get(receiver) or self.candidates.get(receiver)

    def joins(self, link: Link, stamp: int) -> bool:
        """Whether a message with this stamp is one that the receiver will wait for."""
        return stamp > link.stamp


class ReceiverSide:
    """Decides which senders a receiver acknowledges, and up to which stamp."""

    def __init__(self) -> None:
        self.senders: dict[int, Link] = {}

    @property
    def acknowledgment(self) -> int:
        """Up to which stamp everything has been heard; 0 where nobody is heard, for that promises nothing."""
        return min((link.stamp for link in self.senders.values()), default=0)

    def connect(self, sender: int, incarnation: int) -> int:
        """Open a connection and give its first acknowledgment, which stands for the sender's last stamp."""
        old = self.senders.pop(sender, None)
        assert old is None or old.incarnation < incarnation, "incarnations rise"
        first = self.acknowledgment
        self.senders[sender] = Link(incarnation, first)
        return first

    def receive(self, sender: int, incarnation: int, stamp: int) -> bool:
        """Take a message from a sender's channel and say whether it is to be delivered."""
        link = self.senders.get(sender)
        if link is None or link.incarnation != incarnation or not self.is_new(link, stamp):
            return False
        link.stamp = stamp
        return True

    def closed(self, sender: int, incarnation: int) -> None:
        """End a connection, or hear that it has ended."""
        link = self.senders.get(sender)
        if link is not None and link.incarnation <= incarnation:
            del self.senders[sender]

    def is_new(self, link: Link, stamp: int) -> bool:
        """Whether a message has not been heard, nor counted as heard when the connection began."""
        return stamp > link.stamp
