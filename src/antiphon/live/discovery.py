"""Discovery: members that know a multicast address, a name in the DNS or some of the others find each other.

Whoever looks for a group says hello, again and again; members of a group answer, and it joins them. Where nobody
answers, a group is founded. If the number of members is declared, that takes more than half of them, so that there is
never a second group that acknowledges anything. If not, the one with the smallest name founds it after a while, with
all that are looking; then there may be several groups of one name, and of two that meet one stands: the members of
the other give it up and join. Members go on saying hello, so that everyone learns where everyone is, and where to.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, number_of, show
from antiphon.live.anomalies import Anomalies
from antiphon.live.events import GroupClosed
from antiphon.live.freshness import Freshness
from antiphon.live.hello import FOUNDERS_MAX, KNOWN_MAX, Contact, Founding, Hello, HelloSockets, Seal
from antiphon.live.session import Refused, is_of_a_member
from antiphon.protocol.membership.views import GroupView

LOOK_S: Final = 1.0  # for a group that is there
ALIVE_S: Final = 0.5  # whoever looks and was silent for longer has gone
PAUSE_S: Final = 0.1  # between the hellos of one that looks
CALM_S: Final = 1.0  # between those of one that has found its group
CLASH_S: Final = 0.15  # a seeker waits at least this long for another member with its name to answer
ANSWER_S: Final = 0.05  # at most so many answers
GONE_S: Final = 2.5  # a member that has not said hello for so long may be where another of its name says that it is
_NEWEST: Final = 4  # every hello tells of this many members met last, and of the others in turn
VIEW_MEMBERS_MAX: Final = 32  # of a larger one newcomers hear from its members only


class Seeker(Protocol):
    """The member that discovery works for, once it has found its group."""

    def newest_view(self) -> GroupView | None:
        """Return the newest view, for newcomers, once there is one."""

    def learn(self, number: int, name: str, address: Address) -> None:
        """Learn where a member is."""

    def give_up(self, founding: Founding) -> None:
        """Give the group up and join another of the same name, which stands."""


class _Search(msgspec.Struct):
    """What goes on until a group is found."""

    began: float
    remembered: Founding | None  # how the group was founded when last seen
    found: asyncio.Future[None]
    answer: tuple[Founding | None, GroupView | None] | None = None  # of the first member that was heard
    free_at: float = 0.0  # when one's own name is not taken, unless somebody tells of its owner again
    founds_alone: bool = False  # the group is founded by this member alone


class _Turn:
    """When a member says hello next: after a pause, or sooner if somebody waits; one hello answers many."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say
        self._timer: asyncio.TimerHandle | None = None
        self._answer_at = 0.0
        self._awaiting: set[Address] = set()  # an answer

    def come_in(self, seconds: float) -> None:
        """Speak after a pause."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._say)

    def answer(self, address: Address) -> None:
        """Speak at once, or soon if this member has just answered, and to this address too."""
        self._awaiting.add(address)
        now = asyncio.get_running_loop().time()
        if now < self._answer_at:
            self.come_in(self._answer_at - now)
        else:
            self._answer_at = now + ANSWER_S
            self._say()

    def take_awaiting(self) -> set[Address]:
        """Return who waits for an answer: it is given now."""
        awaiting, self._awaiting = self._awaiting, set()
        return awaiting

    def cancel(self) -> None:
        """Say nothing."""
        if self._timer is not None:
            self._timer.cancel()


class AddressBook:
    """The members that are known, by number: their names, and where each is, as it says itself."""

    def __init__(self, own: Contact) -> None:
        self.members: dict[int, Contact] = {number_of(own.name): own}
        self._heard_at: dict[int, float] = {}  # when members said hello themselves, where they are now

    def note(self, contact: Contact, now: float | None = None) -> None:
        """Know a member, the newest of all; `now`: it says so itself."""
        number = number_of(contact.name)
        self.members.pop(number, None)
        self.members[number] = contact
        if now is not None:
            self._heard_at[number] = now

    def another(self, contact: Contact, now: float) -> Contact | None:
        """Return the member that has a name already, if it is another one, or is still where it was."""
        number = number_of(contact.name)
        known = self.members.get(number)
        if known is None or known == contact:
            return None
        is_there = now < self._heard_at.get(number, -GONE_S) + GONE_S
        return known if is_there or known.name != contact.name else None

    def forget(self, number: int) -> None:
        """Hear that a member is not in the group any more: it may come back anywhere."""
        self._heard_at.pop(number, None)


class Discovery:
    """One member's search for its group, and then its help for those who look for it."""

    def __init__(
        self,
        own: Contact,
        sockets: HelloSockets,
        seal: Seal,
        anomalies: Anomalies,
        *,
        asked: Callable[[], Iterable[Address]],
        declared: int | None = None,
    ) -> None:
        """Speak through the sockets to those who are `asked` now; `declared`: how many members found the group."""
        self._own, self._sockets, self.seal, self._anomalies = own, sockets, seal, anomalies
        self._asked, self._declared = asked, declared
        self._looking: dict[str, float] = {}  # who looks for the group too, by name, and when it was last heard
        self.book = AddressBook(own)
        self.founding: Founding | None = None
        self.view: GroupView | None = None  # of the group that was found
        self._seeker: Seeker | None = None
        self._freshness = Freshness()
        self._turn = _Turn(self._say)
        self._search: _Search | None = None  # until the group is found

    async def find(self, remembered: Founding | None = None, *, knows_view: bool = False) -> bool:
        """Find the group, or found it; say whether this member founds it alone.

        `remembered` says how it was founded when last seen. One that `knows_view` of a group with a declared number
        need not find anyone first.
        """
        self._loop = asyncio.get_running_loop()
        self._sockets.hear(self._loop, self.take)
        search = self._search = _Search(self._loop.time(), remembered, self._loop.create_future())
        if knows_view and self._declared is not None:
            search.answer = None, None
        self._say()
        await search.found
        if self._sockets.multicast is None:
            self._sockets.close_ear()  # from now on the transport hears here
        return search.founds_alone

    def go_on(self, seeker: Seeker) -> None:
        """Help those who come later; the seeker is told every member's name and address, those of now at once."""
        self._seeker = seeker
        for number, contact in self.book.members.items():
            seeker.learn(number, contact.name, contact.socket_address())

    def close(self) -> None:
        """Fall silent; a search that goes on ends."""
        self._turn.cancel()
        self._sockets.close()
        self._end_search(GroupClosed("the group was left before it was found"))

    def unheard(self) -> list[str]:
        """Return the addresses that are asked for the group and do not answer, while it is looked for."""
        if self._search is None:
            return []
        since = self._loop.time() - CALM_S
        heard = {self.book.members[number_of(name)].address for name, at in self._looking.items() if at > since}
        return sorted({show(address) for address in self._asked()} - heard)

    @property
    def has_found(self) -> bool:
        """Whether newcomers may come to this member: it is in a group, or joins one."""
        if self._declared is None:
            return self.founding is not None
        return self._newest_view() is not None

    def _newest_view(self) -> GroupView | None:
        return self.view if self._seeker is None else self._seeker.newest_view()

    # Saying

    def _say(self) -> None:
        """Say hello, and again after a pause."""
        self._consider_founding()
        view = self._newest_view()
        small = view is not None and len(view.members) <= VIEW_MEMBERS_MAX
        others = [contact for contact in self.book.members.values() if contact.name != self._own.name]
        known = others[-_NEWEST:] + random.sample(
            others[:-_NEWEST], min(KNOWN_MAX, len(others)) - len(others[-_NEWEST:])
        )
        stamp = self._freshness.stamp(self._loop.time())
        hello = Hello(stamp, self._own, self.has_found, self.founding, tuple(known), view if small else None)
        targets = {*self._asked(), *self._turn.take_awaiting(), *(contact.socket_address() for contact in others)}
        self._sockets.say(self.seal.seal(hello), sorted(targets))
        self._turn.come_in(CALM_S if self.has_found else PAUSE_S)

    def _consider_founding(self) -> None:
        search = self._search
        if search is None:
            return
        now = self._loop.time()
        looking = {name for name, heard in self._looking.items() if now - heard < ALIVE_S} | {self._own.name}
        is_late = now >= search.began + LOOK_S
        if now < search.free_at:
            return
        if search.answer is not None:
            if now >= search.began + CLASH_S:
                self._adopt(*search.answer)
        elif self._declared == 1:  # any would be enough, so the first by name founds it, and is found by the others
            if is_late and self._own.name == min(looking):
                search.founds_alone = True
                self._end_search()
        elif self._declared is not None:
            if 2 * len(looking) > self._declared:
                self._end_search()
        elif is_late and search.remembered is not None:
            self._adopt(search.remembered, None)
        elif is_late and self._own.name == min(looking):
            self._adopt(Founding(tuple(sorted(looking)[:FOUNDERS_MAX]), time.time_ns()), None)

    def _adopt(self, founding: Founding | None, view: GroupView | None) -> None:
        self.founding, self.view = founding, view
        self._end_search()

    def _end_search(self, error: Exception | None = None) -> None:
        search, self._search = self._search, None
        if search is not None and not search.found.done():
            if error is None:
                search.found.set_result(None)
            else:
                search.found.set_exception(error)

    # Hearing

    def take(self, packet: bytes) -> None:
        """Take a packet if it is a hello; whoever has found this member already may send other packets, too."""
        if is_of_a_member(packet):
            return  # it says it again
        try:
            self._hear(self.seal.open(packet))
        except Refused as refused:
            self._anomalies.note("refused-" + refused.reason, refused.about)

    def _hear(self, hello: Hello) -> None:
        if hello.sender == self._own:
            return
        if not self._freshness.is_proven(hello.sender.name, hello.stamp):
            self._turn.answer(hello.sender.socket_address())
            return
        self._meet(hello.sender, itself=True)
        for other in hello.known:
            self._meet(other, itself=False)
        if not hello.has_found:
            self._looking[hello.sender.name] = self._loop.time()
            if self.has_found:
                self._turn.answer(hello.sender.socket_address())  # where the group is
            return
        self._looking.pop(hello.sender.name, None)
        if self._search is not None:
            self._search.answer = self._search.answer or (hello.founding, hello.view)
        elif hello.founding is not None and self.founding is not None and hello.founding != self.founding:
            self._meet_another_group(hello.founding, hello.view)

    def _meet_another_group(self, founding: Founding, view: GroupView | None) -> None:
        assert self.founding is not None
        self._anomalies.note("other-group", f"founded by {', '.join(founding.founders)}")
        begun, has_begun = view is not None, self._newest_view() is not None
        # what is still being founded has nothing to give to those who come from a group that has delivered something
        stands = founding.outranks(self.founding) if begun == has_begun else begun
        if stands and self._seeker is not None:
            self.founding, self.view = founding, view
            self._seeker.give_up(founding)
            self._say()  # to those who still are where this member was, too

    def _meet(self, contact: Contact, *, itself: bool) -> None:
        """Learn of a member; where a known one is now, it says itself, once it is gone from where it was."""
        number, now = number_of(contact.name), self._loop.time()
        known = self.book.members.get(number)
        if known == self._own:
            self._refuse_own_name(contact, itself=itself)
        elif known is None or itself:
            if itself and (another := self.book.another(contact, now)) is not None:
                self._refuse(another, contact)
            address = contact.socket_address()
            self.book.note(contact, now if itself else None)
            if known != contact and self._seeker is not None:
                self._seeker.learn(number, contact.name, address)

    def _refuse(self, known: Contact, contact: Contact) -> None:
        """Refuse one whose name cannot be told from that of another member, and tell it where that one is."""
        self.book.note(known)  # it is told of in the next hello
        self._turn.answer(contact.socket_address())
        self._anomalies.note("refused-same-name", f"{contact.name} at {contact.address}, not at {known.address}")
        raise Refused("same-name")

    def _refuse_own_name(self, contact: Contact, *, itself: bool) -> None:
        """Refuse one who has this member's name, and one who looks for the group ends its search; or ask if it lives.

        Others tell of a member that is gone as well, so it must be asked itself.
        """
        address = contact.socket_address()
        if itself:
            own, other = self._own.name, contact.name
            if own == other:
                why = f"name: {own} is taken by a member at {contact.address}; two members cannot have one name"
            else:
                why = f"discover: {own} and {other} get the same number; give this member another name"
            self._end_search(UsageError(why))
            self._turn.answer(address)  # one that looks is told so itself
            self._anomalies.note("refused-same-name", f"{other} at {contact.address}")
            raise Refused("same-name")
        if self._search is not None and contact != self._own:
            self._search.free_at = self._loop.time() + ALIVE_S
            self._turn.answer(address)


def contact(name: str, address: Address) -> Contact:
    """Return a member's name and address as hellos carry them."""
    return Contact(name, show(address))
