"""What processes say to one another about views, and how it is put into datagrams.

These travel beside the datagrams of the view's members, under a group tag of their own, in fragments where they are
long. A fragment says by a checksum of which message it is, so that a message sent again completes what was lost. The
tag says the version of the wire, too; the header, which versions its sender speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Final, Literal, TypeAlias
from zlib import crc32

import msgspec

from antiphon.protocol.fragment import Fragment, Reassembler, cut
from antiphon.protocol.membership.versions import WireVersions
from antiphon.protocol.membership.views import Ballot, Change, Counters, GroupView, Processes, ProcessId, ViewId
from antiphon.protocol.wire import Codec, Counter, Header, Malformed, Pdu, Rank, Spoken, Timestamp, group_of, group_tag

PIECES_MAX: Final = 4_096
TEXTS_MAX: Final = 4  # unfinished ones that are kept of each sender
RANGES_MAX: Final = 4_096

CHUNKS_MAX: Final = 256  # of a state, at once
ECHOES_MAX: Final = 8  # in one sign of life

FIRST_SPOKEN: Final = Spoken(2, 2)

Digest: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=32)]
# awaiting: a member that lacks the state yet; behind: one that joins once its application has taken what waits for it
Standing: TypeAlias = Literal["member", "full", "awaiting", "joiner", "leaver", "behind"]


class Piece(Pdu, tag=100):
    """Part of a message that is too long for one datagram."""

    kind: ClassVar[str] = "piece"
    text: Counter  # its checksum
    index: Annotated[int, msgspec.Meta(ge=0, lt=PIECES_MAX)]
    count: Annotated[int, msgspec.Meta(ge=1, le=PIECES_MAX)]
    data: Annotated[bytes, msgspec.Meta(max_length=65_507)]


class Echo(msgspec.Struct, frozen=True, array_like=True):
    """What another's sign of life said of its time, and how long ago it came: it measures a round trip."""

    name: ProcessId
    at: Timestamp
    held_ns: Timestamp


class Alive(Pdu, tag=101):
    """A sign of life to everyone: the newest view that its sender knows, and what it is in it or wants to be."""

    kind: ClassVar[str] = "alive"
    view: ViewId
    standing: Standing
    unheard: Processes = ()  # the names that its sender does not hear
    asks: bool = False  # whether it wants a sign of life in return, at once
    at: Timestamp = 0  # when it was given, by its sender's clock
    period_ns: Timestamp = 0  # when its sender gives the next one
    pause_ns: Timestamp = 0  # how long its sender's machine has kept it waiting of late
    echoes: Annotated[tuple[Echo, ...], msgspec.Meta(max_length=ECHOES_MAX)] = ()


class Prepare(Pdu, tag=102):
    """Stop, promise to follow no lower ballot, and tell what you hold; the new view is whoever answers."""

    kind: ClassVar[str] = "prepare"
    ballot: Ballot
    view: GroupView


class Acceptance(msgspec.Struct, frozen=True, array_like=True):
    """A change that was accepted, and with which ballot."""

    ballot: Ballot
    change: Change


class State(Pdu, tag=103):
    """The answer to a prepare: an acceptor's promise, and what a member holds."""

    kind: ClassVar[str] = "state"
    ballot: Ballot
    view: ViewId
    standing: Standing
    accepted: Acceptance | None
    reach: Counters  # per rank, up to where its PDUs are held together with all that they depend on; empty: no member
    sent: Counter  # own messages in this view
    order: bytes  # what the ordering adds
    spoken: Spoken = FIRST_SPOKEN  # the versions of the wire that it speaks


class Refusal(Pdu, tag=104):
    """A higher ballot was promised."""

    kind: ClassVar[str] = "refusal"
    ballot: Ballot
    view: ViewId
    promised: Ballot


class Accept(Pdu, tag=105):
    """Accept this change, once you hold its cut."""

    kind: ClassVar[str] = "accept"
    ballot: Ballot
    change: Change


class Vote(Pdu, tag=106):
    """Its sender holds the cut and has accepted the change of this ballot."""

    kind: ClassVar[str] = "accepted"
    ballot: Ballot
    view: ViewId


class Commit(Pdu, tag=107):
    """A change was decided: a fact, whoever tells it."""

    kind: ClassVar[str] = "commit"
    change: Change


class Newer(Pdu, tag=108):
    """The newest view that its sender knows, for one who knows an older one: a fact, whoever tells it."""

    kind: ClassVar[str] = "newer"
    view: GroupView


class Fetch(Pdu, tag=109):
    """Please send what this old view's members sent: of each rank what lies above one number, up to another."""

    kind: ClassVar[str] = "fetch"
    view: ViewId
    ranges: Annotated[list[tuple[Rank, Timestamp, Timestamp]], msgspec.Meta(min_length=1, max_length=RANGES_MAX)]


class Fill(Pdu, tag=110):
    """All that a rank sent above one number, up to another."""

    kind: ClassVar[str] = "fill"
    view: ViewId
    rank: Rank
    above: Timestamp
    upto: Timestamp
    pdus: list[tuple[Timestamp, bytes]]  # with their numbers, in order


class ViewQuestion(Pdu, tag=113):
    """Its sender was away: does this view still stand?"""

    kind: ClassVar[str] = "question"
    view: ViewId
    nonce: Timestamp


class ViewAnswer(Pdu, tag=114):
    """The answer to a question: the newest view that its sender knows."""

    kind: ClassVar[str] = "answer"
    view: ViewId
    nonce: Timestamp


class Superseded(Pdu, tag=115):
    """To a process that cannot join in this incarnation of its name: up to which one none can."""

    kind: ClassVar[str] = "superseded"
    latest: ProcessId


class SnapshotRequest(Pdu, tag=111):
    """A joiner asks for chunks of the application's state at the beginning of a view; none: it has them all."""

    kind: ClassVar[str] = "snapshot-request"
    view: ViewId
    digest: Digest  # of the state that it has begun to receive; where that is another one, it begins anew
    offset: Timestamp
    count: Annotated[int, msgspec.Meta(ge=0, le=CHUNKS_MAX)]


class SnapshotChunk(Pdu, tag=112):
    """Part of the application's state at the beginning of a view."""

    kind: ClassVar[str] = "snapshot"
    view: ViewId
    digest: Digest
    size: Timestamp  # of the whole state
    offset: Timestamp
    data: bytes


class NoSnapshot(Pdu, tag=116):
    """Taking the application's state at the beginning of a view has failed here: ask another."""

    kind: ClassVar[str] = "no-snapshot"
    view: ViewId


MembershipMessage: TypeAlias = (
    Alive
    | Prepare
    | State
    | Refusal
    | Accept
    | Vote
    | Commit
    | Newer
    | Fetch
    | Fill
    | ViewQuestion
    | ViewAnswer
    | Superseded
    | SnapshotRequest
    | SnapshotChunk
    | NoSnapshot
)
_MESSAGES: Final = (
    Alive,
    Prepare,
    State,
    Refusal,
    Accept,
    Vote,
    Commit,
    Newer,
    Fetch,
    Fill,
    ViewQuestion,
    ViewAnswer,
    Superseded,
    SnapshotRequest,
    SnapshotChunk,
    NoSnapshot,
)


class MembershipCodec:
    """Puts messages about views into datagrams, in fragments where they are long, and takes them out again."""

    def __init__(self, group: str, piece_bytes: int, versions: WireVersions | None = None) -> None:
        self.versions = versions or WireVersions()
        self._piece_bytes = piece_bytes
        known = self.versions.known
        self._tags = {version: group_tag(f"{group}/views/{version}") for version in known}
        self._codecs = {self._tags[version]: codec((*_MESSAGES, Piece)) for version, codec in known.items()}
        self._unfinished = Reassembler(unfinished_max=TEXTS_MAX, bytes_max=TEXTS_MAX * PIECES_MAX * piece_bytes)

    def write(self, sender: int, message: MembershipMessage, version: int | None = None) -> list[bytes]:
        """Return the datagrams that carry a message, in a version of the wire or, without one, in the newest."""
        spoken = self.versions.spoken
        tag = self._tags[version or spoken.newest]
        codec, header = self._codecs[tag], Header(tag, 0, sender, spoken.newest, spoken.oldest)
        encoded = codec.encode_pdu(message)
        if len(encoded) <= self._piece_bytes or isinstance(message, SnapshotChunk):  # by the million: the network cuts
            return [codec.frame(header, [encoded])]
        pieces = cut(encoded, self._piece_bytes, crc32(encoded))
        assert len(pieces) <= PIECES_MAX, "what is unstable is bounded by the windows"
        return [
            codec.frame(header, [codec.encode_pdu(Piece(piece.number, piece.index, piece.count, piece.data))])
            for piece in pieces
        ]

    def read(self, datagram: bytes) -> tuple[int, list[MembershipMessage]]:
        """Return a datagram's sender, and the messages that are complete with it; raise `Malformed` for garbage."""
        codec = self._codecs.get(group_of(datagram))
        if codec is None:
            raise Malformed("foreign-group")
        header, pdus = codec.decode(datagram)
        self.versions.hear(header.sender, Spoken(header.free, header.sent))
        messages: list[MembershipMessage] = []
        for pdu in pdus:
            whole = self._whole(header.sender, pdu, codec) if isinstance(pdu, Piece) else pdu
            if whole is not None:
                messages.append(whole)  # type: ignore[arg-type]  # the codec knows nothing else
        return header.sender, messages

    def keep_only(self, wanted: Callable[[int], bool]) -> None:
        """Drop what processes left unfinished that nobody will complete."""
        for source in self._unfinished.sources():
            if not wanted(source):
                self._unfinished.forget(source)

    def unfinished(self, source: int) -> int:
        """Count the messages of a process that lack some of their fragments."""
        return len(self._unfinished.unfinished(source))

    def _whole(self, sender: int, piece: Piece, codec: Codec) -> Pdu | None:
        if len(piece.data) > self._piece_bytes or piece.index >= piece.count:
            raise Malformed("impossible-piece")
        encoded = self._unfinished.add(sender, Fragment(piece.text, piece.index, piece.count, piece.data))
        if encoded is None:
            return None
        if crc32(encoded) != piece.text:
            raise Malformed("checksum")
        message = codec.decode_pdu(encoded)
        if isinstance(message, Piece):
            raise Malformed("nested-piece")
        return message
