"""Datagrams of one view: what a member says in one turn leaves in as few of them as it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import Out
from antiphon.protocol.view.output import Output, View
from antiphon.protocol.wire import (
    DATAGRAM_BYTES_MAX,
    Header,
    Malformed,
    Pdu,
    Streamed,
    group_tag,
)


class Frames:
    """Encodes and decodes a member's datagrams; those of other groups and views are refused."""

    def __init__(
        self, output: Output, kinds: Iterable[type[Pdu]], group: str, view: View, counts: Counter[str]
    ) -> None:
        self._output, self._counts = output, counts
        self._codec = view.codec(kinds)
        self._group, self._view = group_tag(group), view.number & 0xFFFFFFFF
        self._rank, self._size = output.rank, len(view.members)
        self.heard_at: dict[int, Instant] = {}  # by rank, when a datagram of it last came, until somebody asks
        self.outbox: dict[tuple[int, ...] | None, list[bytes]] = {}  # for the next flush: by targets, encoded
        self._new: list[int] = []  # which of those to all are new in one's own stream

    def read(self, datagram: bytes, now: Instant) -> tuple[Header, list[Pdu]]:
        """Decode a datagram of another member of this view, or raise `Malformed`."""
        header, pdus = self._codec.decode(datagram)
        if header.group != self._group:
            raise Malformed("foreign-group")
        if header.view != self._view:
            raise Malformed("other-view")
        if header.sender >= self._size or header.sender == self._rank:
            raise Malformed("impossible-sender")
        self.heard_at[header.sender] = now
        return header, pdus

    def recognizes(self, datagram: bytes, now: Instant) -> bool:
        """Say whether a datagram is of another member of this view, and note that it was heard."""
        try:
            self.read(datagram, now)
        except Malformed:
            return False
        return True

    def put(self, out: Out) -> None:
        """Encode a PDU for the next flush, and say so in the trace."""
        encoded = self._codec.encode_pdu(out.pdu)
        pdus = self.outbox.setdefault(out.to, [])
        if out.to is None and isinstance(out.pdu, Streamed) and not out.repair:
            self._new.append(len(pdus))
        pdus.append(encoded)
        if out.repair:
            self._counts["retransmissions"] += 1
        elif out.seq is None:
            self._counts[out.pdu.kind] += 1
        output = self._output
        if not output.traced:
            return
        size = len(encoded) + self._codec.overhead
        if out.repair:
            target = "all" if out.to is None else ",".join(str(output.ids[rank]) for rank in out.to)
            output.row("control", out.sender, out.seq, size, f"repair to {target}")
        elif out.seq is not None:
            payload = getattr(out.pdu, "payload", None)  # where an ordering's PDUs of messages call it so, as ours do
            output.row("send", out.sender, out.seq, size, None, payload)
        else:
            output.row("control", None, None, size, out.pdu.kind)

    @property
    def bytes_for_all(self) -> int:
        """How much of what was put in is for all."""
        return sum(map(len, self.outbox.get(None, ())))

    def flush(self, sent: int, free: int) -> None:
        """Send what was put in; every header says how far one's own stream goes, and how many slots are left.

        What leaves behind a datagram is not told of in its header: on a slow link it may come long after, and would be
        taken for lost.
        """
        ways, self.outbox = self.outbox, {}
        new, self._new = self._new, []
        later = len(new)  # PDUs of one's own stream that have not left yet
        frame, overhead = self._codec.frame, self._codec.overhead
        for to, pdus in ways.items():
            start, size = 0, overhead
            for end, encoded in enumerate(pdus):
                if size + len(encoded) > DATAGRAM_BYTES_MAX:
                    if to is None:
                        later = sum(position >= end for position in new)
                    self._output.send(to, frame(self._header(sent - later, free), pdus[start:end]))
                    start, size = end, overhead
                size += len(encoded)
            if to is None:
                later = 0
            self._output.send(to, frame(self._header(sent - later, free), pdus[start:]))

    def _header(self, sent: int, free: int) -> Header:
        return Header(self._group, self._view, self._rank, sent, free)

    # Copies for those who lack them when the view ends

    def encode(self, pdu: Pdu) -> bytes:
        """Encode a PDU that travels by another way than in a frame."""
        return self._codec.encode_pdu(pdu)

    def decode(self, encoded: bytes) -> Pdu:
        """Decode such a PDU, or raise `Malformed`."""
        return self._codec.decode_pdu(encoded)
