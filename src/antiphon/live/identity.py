"""Who a member is and with whom its group begins: by a list of peers, or found by discovery."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, entries_of, is_numeric, is_reachable, number_of, parse, resolve, show
from antiphon.live.anomalies import Anomalies
from antiphon.live.contacts import Contacts
from antiphon.live.discovery import Discovery, contact
from antiphon.live.driver import Driver
from antiphon.live.hello import Contact, Founding, HelloSockets, Seal
from antiphon.live.settings import PEERS, Settings, dns_name
from antiphon.live.sockets import MakeSocket
from antiphon.live.storage import Memory, StateFolder
from antiphon.protocol.membership.process import Process, Saved
from antiphon.protocol.membership.views import NO_BALLOT, before_the_first, incarnation_of, name_of


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a member is, and with whom the group began."""

    me: int  # own number
    own: Address
    names: dict[int, str]  # of the founders, by number; of those that are known, where their number is declared
    addresses: dict[int, Address]  # of those whose address is known
    declared: int = 0  # how many members found the group, where their names need not be known
    contacts: Contacts  # who was named by a host name
    folder: StateFolder
    discovery: Discovery | None = None  # how the others were found, if they were not given

    @property
    def found(self) -> Mapping[int, Contact]:
        """Where the members are that were found by discovery, by number."""
        return {} if self.discovery is None else self.discovery.book.members

    @property
    def founders(self) -> list[str]:
        """The founders' names in order: which group this is, where their number was not declared."""
        return [] if self.declared else list(self.names.values())

    def knowledge(self, saved: bytes | None, incarnation: int) -> bytes | None:
        """Return what this name knows of its group: what was saved, or the view of the group that was found.

        Its next incarnation follows the given one, which may have been in another group of the same name.
        """
        if saved is not None:
            known = msgspec.msgpack.decode(saved, type=Saved)
            known = msgspec.structs.replace(known, incarnation=max(known.incarnation, incarnation))
            return msgspec.msgpack.encode(known)
        view = None if self.discovery is None else self.discovery.view
        if view is None and not incarnation:
            return None
        view = view or before_the_first(self.names)
        incarnations = (incarnation_of(member) for member in view.members if name_of(member) == self.me)
        last = max(incarnations, default=0) if view.number else 0
        return msgspec.msgpack.encode(Saved(max(last, incarnation), view, NO_BALLOT, None, None, remembers=False))

    def founded_by(self, founding: Founding) -> Identity:
        """Return the same member in another group of the same name."""
        return msgspec.structs.replace(self, names=_numbered(founding.founders))


def _numbered(names: Sequence[str]) -> dict[int, str]:
    return {number_of(name): name for name in names}


async def listed(settings: Settings, folder: StateFolder, anomalies: Anomalies) -> Identity:
    """Find out who is who from the list of peers; names are entries of the list, and numbers their positions in it."""
    own = await _own_address(settings)
    entry, entries = entries_of(settings.address or settings.bind, settings.peers)
    contacts = Contacts((parse(one, "peers") for one in entries), six=":" in own[0], anomalies=anomalies)
    await _look_up(contacts, settings)
    addresses = {number: contacts.found[parse(one, "peers")] for number, one in enumerate(entries)}
    known = {number: found[0] for number, found in addresses.items() if found}
    if len({":" in host for host, _ in known.values()}) > 1:
        raise UsageError("peers: IPv4 and IPv6 addresses are mixed; one socket serves one family")
    return Identity(
        me=entries.index(entry),
        own=own,
        names=dict(enumerate(entries)),
        addresses={**known, entries.index(entry): own},
        contacts=contacts,
        folder=folder,
    )


async def found(
    settings: Settings,
    folder: StateFolder,
    make_socket: MakeSocket,
    anomalies: Anomalies,
    begun: Callable[[Discovery], None],
) -> Identity:
    """Find the group, or found it; `begun` hears of the search, which ends when it is closed."""
    own, bind = await _own_address(settings), await resolve(settings.bind, "bind")
    if not is_numeric(own[0]):  # only a simulated host's stays a name
        raise UsageError(f"bind: {show(own)} is a name; with discover take numeric addresses, as of world.addresses(3)")
    memory = folder.memory(settings.bind) or folder.memory_of_an_address(own)
    name = settings.name or (None if memory is None else memory.name) or show(own)
    contacts = Contacts(_asked(settings), six=":" in own[0], anomalies=anomalies)
    await _look_up(contacts, settings)
    multicast = None
    if settings.discover != PEERS and dns_name(settings) is None:
        multicast = await resolve(str(settings.discover), "discover")
    discovery = Discovery(
        contact(name, own),
        HelloSockets(bind, multicast, settings.ttl, make_socket, anomalies),
        Seal(settings.group, settings.keys()),
        anomalies,
        asked=lambda: contacts.addresses() - {own},
        declared=settings.members,
    )
    contacts.go_on()
    me, declared = number_of(name), settings.members or 0
    remembered = None if memory is None else memory.founding
    file = folder.member([] if remembered is None or declared else list(_numbered(remembered.founders).values()), me)
    for other in file.contacts():  # those that were to be asked may be gone for good
        discovery.book.note(other)
    try:
        begun(discovery)
        founds_alone = await discovery.find(remembered, knows_view=bool(declared) and file.knows_view)
    except BaseException:
        discovery.close()
        contacts.close()
        raise
    folder.remember(settings.bind, Memory(name=name, founding=discovery.founding))
    founding = discovery.founding
    names = {number: one.name for number, one in discovery.book.members.items()}
    if founds_alone:
        names = {me: name}
    return Identity(
        me=me,
        own=own,
        names=names if founding is None else _numbered(founding.founders),
        addresses={number: one.socket_address() for number, one in discovery.book.members.items()},
        declared=declared,
        contacts=contacts,
        folder=folder,
        discovery=discovery,
    )


def follow(identity: Identity, driver: Driver, host: Address, addresses: tuple[Address, ...]) -> None:
    """Hear at which addresses a host of the list is now; where the present one is silent, take the next.

    Who is heard stays where it is, since a name may be answered with some of its addresses at a time.
    """
    number = next((number for number, name in identity.names.items() if parse(name, "peers") == host), identity.me)
    if number == identity.me:
        return
    transport, machine = driver.transport, driver.machine
    present = transport.address_of(number)
    is_silent = isinstance(machine, Process) and machine.detector.suspected(number, driver.clock())
    if isinstance(machine, Process) and present is not None and not is_silent:
        return
    if present not in addresses:
        transport.know(number, addresses[0])
    elif is_silent and len(addresses) > 1:
        transport.know(number, addresses[(addresses.index(present) + 1) % len(addresses)])


def _asked(settings: Settings) -> list[Address]:
    dns = dns_name(settings)
    return [parse(peer, "peers") for peer in settings.peers] + ([] if dns is None else [dns])


async def _own_address(settings: Settings) -> Address:
    """Return the address by which the others know this member."""
    what = "bind" if settings.address is None else "address"
    own = await resolve(settings.address or settings.bind, what)
    if not is_reachable(own[0]) and (settings.peers or settings.discover is not None):
        raise UsageError(
            f"{what}: {show(own)} is no address at which the others reach this member; "
            f"bind one of this machine's own, or give the one that they know as address"
        )
    return own


async def _look_up(contacts: Contacts, settings: Settings) -> None:
    """Look all names up; some may be unknown as yet, but where all peers are, nobody could be spoken to."""
    await contacts.look_up()
    peers = [parse(peer, "peers") for peer in settings.peers]
    if peers and not any(contacts.found.get(peer, peer) for peer in peers):
        raise UsageError(f"peers: {settings.peers[0]!r} {contacts.wrong[peers[0]]}; give a known host")
