"""Every way in which taking part in a group can be set: the signature of `antiphon.join`, with its defaults."""

from __future__ import annotations

import functools
import inspect
import math
import textwrap
from collections.abc import Awaitable, Callable, Collection, Sequence
from os import PathLike
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_type_hints

import msgspec

from antiphon.errors import UsageError, UsageTypeError, did_you_mean
from antiphon.live.addresses import NAME_LENGTH_MAX, parse
from antiphon.live.arguments import check_path, check_range, check_takes, check_text, check_type, plain
from antiphon.live.burst import MESSAGE_BYTES_MAX
from antiphon.live.events import Status
from antiphon.live.handshake import Description
from antiphon.live.session import check_keys
from antiphon.live.state import State
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.options import GroupOptions, part_name
from antiphon.protocol.ordering import ALIASES
from antiphon.protocol.parts import Ordering, Stability
from antiphon.protocol.wire import VECTOR_ENTRIES_MAX, Spoken

PEERS = "peers"  # for `discover`: some of the others are known, and know the rest
DNS = "dns:"  # begins a `discover` that is a name, whose addresses are those of the members
_USUAL = GroupOptions()
_RANGES = {  # of numbers: the least and the most
    "window": (1, math.inf),
    "window_bytes": (1, math.inf),
    "message_bytes_max": (1, MESSAGE_BYTES_MAX),
    "inbox_bytes_max": (1, math.inf),
    "ttl": (0, 255),
    "leave_s": (0, math.inf),
}
_TAKES = {"metrics": 1, "snapshot": 0, "restore": 1}  # how many arguments the application's functions are given


class _Named(msgspec.Struct, frozen=True):
    """What is given first, without a keyword."""

    group: Annotated[str, "the group's name, the same at every member"]


class Settings(_Named, frozen=True, kw_only=True):
    """How to take part in a group; every member gives the same `group`, addresses, ordering and stability.

    The text beside each field is what `help(antiphon.join)`, `antiphon join --help` and the reference say about it.
    """

    bind: Annotated[str, "this member's address, host:port"]
    peers: Annotated[Sequence[str], "the others' addresses, host:port each; written the same way at every member"] = ()
    address: Annotated[str | None, "this member's address as the others know it, host:port, if it is not `bind`"] = None
    ordering: Annotated[
        str | type[Ordering],
        "fifo, causal-blocks (or causal), co, abcast (or total), tomp or sequencer",
    ] = _USUAL.ordering
    ordering_options: Annotated[dict[str, Any], "options of the ordering, as its page names them"] = {}
    stability: Annotated[
        str | type[Stability],
        "vector-ack, timestamp-ack, coordinator, full-distribution, train, tree-coordinator or tree-train; "
        "causal-blocks and co bring their own",
    ] = _USUAL.stability
    stability_options: Annotated[dict[str, Any], "options of the stability protocol, as its page names them"] = {}
    safe: Annotated[bool, "deliver only what every member holds"] = _USUAL.safe
    views: Annotated[bool, "members may come and go; False: they never change, and all are waited for"] = _USUAL.views
    membership: Annotated[MembershipOptions, "times of heartbeats and suspicion, in nanoseconds"] = _USUAL.membership
    partition: Annotated[
        Literal["majority", "each-side"],
        "which part goes on when the group is cut in two: the one with more than half of it, or each side",
    ] = _USUAL.membership.partition
    slow: Annotated[
        Literal["block", "drop", "lag"],
        "what to do if a member holds all back: wait, exclude it, or let it miss messages older than their lifetime",
    ] = _USUAL.membership.slow
    state: Annotated[
        str | PathLike[str] | None,
        "folder for the little that must survive a crash; by default antiphon in $XDG_STATE_HOME or ~/.local/state",
    ] = None
    snapshot: Annotated[Callable[[], State] | None, "returns the application's state, for members that join"] = None
    restore: Annotated[
        Callable[[Any], Awaitable[None] | None] | None, "takes over such a state: bytes, a file or an async iterator"
    ] = None
    key: Annotated[
        bytes | Sequence[bytes] | None,
        "16, 24 or 32 bytes that the group shares: all packets are encrypted and authenticated; of several keys, the "
        "first encrypts and all are accepted",
    ] = None
    window: Annotated[int, "how many of this member's bursts of messages may be unstable at once"] = _USUAL.window
    window_bytes: Annotated[int, "bytes in these bursts: a new burst is begun only while there are fewer"] = 512 << 10
    message_bytes_max: Annotated[int, "the longest message, in bytes; at most 72,088,500"] = 16 << 20
    inbox_bytes_max: Annotated[
        int, "how many delivered bytes may wait for the application; beyond that, nothing more is received"
    ] = 8 << 20
    listen: Annotated[bool, "False: this application only sends, and events are dropped"] = True
    discover: Annotated[
        str | None,
        "how members find each other: IPv4 multicast group:port, 'peers' (which know the others), or dns:name[:port]",
    ] = None
    members: Annotated[
        int | None, "with discover: how many members found the group; without it, several groups of one name may exist"
    ] = None
    name: Annotated[
        str | None,
        "with discover: this member's name, which stays when its address changes; by default one is made and kept",
    ] = None
    multicast: Annotated[str | None, "IPv4 multicast group:port to which packets for all members are sent"] = None
    ttl: Annotated[int, "how many routers a multicast packet may pass"] = 1
    offload: Annotated[bool | None, "let the kernel cut large packets; by default wherever it can"] = None
    leave_s: Annotated[
        float,
        "how many seconds leaving may wait until sent messages are delivered and joiners have the state",
    ] = 5.0
    trace: Annotated[
        str | PathLike[str] | None, "folder for this member's events, which `antiphon check` and `report` read"
    ] = None
    trace_payloads: Annotated[
        bool, "write the first 200 characters of each message to the trace too, not encrypted"
    ] = False
    recording: Annotated[bool, "keep all inputs in memory, to replay them"] = False
    metrics: Annotated[Callable[[Status], None] | None, "called with the status every second"] = None
    status_at: Annotated[str | None, "host:port at which `antiphon dashboard` can read the status"] = None

    def keys(self) -> list[bytes] | None:
        """Return the group keys, checked."""
        if self.key is None:
            return None
        return check_keys([self.key] if isinstance(self.key, bytes) else list(self.key))

    def protocols(self) -> tuple[str, str]:
        """Return the ordering's own name, where another stands for it, and that of the stability protocol."""
        ordering = part_name(self.ordering)
        return ALIASES.get(ordering, ordering), part_name(self.stability)

    def options(self, tag: str) -> GroupOptions:
        """Return the options of the group; `tag` tells groups apart that are set up differently."""
        membership = msgspec.structs.replace(
            self.membership, partition=self.partition, slow=self.slow, transfer=self.snapshot is not None
        )
        return GroupOptions(
            group=f"{self.group}/{tag}",
            ordering=self.ordering,
            ordering_options=self.ordering_options,
            stability=self.stability,
            stability_options=self.stability_options,
            window=self.window,
            safe=self.safe,
            views=self.views,
            membership=membership,
        )

    def spoken(self, versions: Collection[int]) -> Spoken:
        """Return which of these versions of the wire are spoken: the newest alone where views do not agree upon one."""
        return Spoken.of(versions if self.views else [max(versions)])

    def description(self, founders: Sequence[str]) -> Description:
        """Return what members compare before they hear each other."""
        usual = Settings("", bind="").described(())
        return Description(self.described(founders), usual)

    def described(self, founders: Sequence[str]) -> dict[str, object]:
        """Return what has to be the same at all members, by the names of the settings."""
        options = msgspec.structs.asdict(self.options(""))
        membership = msgspec.structs.asdict(options.pop("membership"))
        ordering, stability = self.protocols()
        return {
            "peers": [] if self.discover is not None else list(founders),
            "members": self.members,
            **options,
            **{name: membership.pop(name) for name in ("partition", "slow")},
            "snapshot": membership.pop("transfer"),
            **{f"membership.{name}": value for name, value in membership.items()},
            "ordering": ordering,
            "stability": stability,
            "group": self.group,
        }

    def check(self) -> None:
        """Raise a `UsageError` that names what is wrong, as far as it can be seen before the addresses are known."""
        for name, hint in _hints(type(self)).items():
            check_type(name, getattr(self, name), hint)
            check_text(name, getattr(self, name))
        for name, hint in _hints(MembershipOptions).items():
            check_type(f"membership.{name}", getattr(self.membership, name), hint)
        if not self.group:
            raise UsageError("group: a group needs a name")
        for name, (least, most) in _RANGES.items():
            check_range(name, getattr(self, name), least, most)
        for name in ("state", "trace"):
            if getattr(self, name) is not None:
                check_path(name, getattr(self, name))
        for name, arguments in _TAKES.items():
            if name != "restore" and inspect.iscoroutinefunction(getattr(self, name)):
                raise UsageTypeError(f"{name}: must be a function, not a coroutine function")
            if getattr(self, name) is not None:
                check_takes(name, getattr(self, name), arguments)
        if (self.snapshot is None) != (self.restore is None):
            raise UsageError("snapshot, restore: one without the other cannot bring a joiner up to date")
        if self.snapshot is not None and not self.listen:
            raise UsageError(
                "snapshot: is taken between events, which the application must take; not with listen=False"
            )
        if self.discover is not None and (not self.views or (self.peers and self.discover != PEERS)):
            raise UsageError("discover: finds members that come and go; give neither peers nor views=False with it")
        if self.discover is None and (self.members is not None or self.name is not None):
            raise UsageError("members, name: are for discover; with peers, the list says how many, and who is who")
        if self.name is not None and not 1 <= len(self.name) <= NAME_LENGTH_MAX:
            raise UsageError(f"name: 1 to {NAME_LENGTH_MAX} characters, not {len(self.name)}")
        if self.members is not None:
            check_range("members", self.members, 1, VECTOR_ENTRIES_MAX)
        if self.trace_payloads and self.trace is None:
            raise UsageError("trace_payloads: there is no trace to write them to; give trace as well")
        self.keys()
        self._check_addresses()
        self.options("").check(len(self.peers) + 1, founding=False)

    def _check_addresses(self) -> None:
        parse(self.bind, "bind")
        for peer in self.peers:
            parse(peer, "peers")
        for name in ("address", "multicast", "status_at", "discover"):
            text = getattr(self, name)
            if name == "discover" and dns_name(self) is not None:
                continue
            if text is not None and (name, text) != ("discover", PEERS):
                parse(text, name)


_hints = functools.cache(get_type_hints)


def words() -> dict[str, str]:
    """Return what each setting means, with its unit, by its name."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(Settings, include_extras=True).items()}


def dns_name(settings: Settings) -> tuple[str, int] | None:
    """Return the name whose addresses are the members', and their port, if that is how they are found."""
    if settings.discover is None or not settings.discover.startswith(DNS):
        return None
    text, own_port = settings.discover.removeprefix(DNS), settings.bind.rpartition(":")[2]
    if not text.partition(":")[0]:
        raise UsageError(f"discover: {settings.discover!r} names no host; write dns:name or dns:name:port")
    return parse(text if ":" in text else f"{text}:{own_port}", "discover")


_P = ParamSpec("_P")
_R = TypeVar("_R")


def settable(
    settings: Callable[_P, Settings],
) -> Callable[[Callable[[Settings], _R]], Callable[_P, _R]]:
    """Give a function of `Settings` their fields as its own keywords, which `help` and type checkers see."""

    def decorate(function: Callable[[Settings], _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def called(*args: _P.args, **keywords: _P.kwargs) -> _R:
            try:
                made = settings(*map(plain, args), **{name: plain(one) for name, one in keywords.items()})
            except TypeError as error:
                known = inspect.signature(called).parameters
                near = "".join(did_you_mean(word, known) for word in keywords if word not in known)
                told = f"{function.__name__}: {error}{near}; its keywords are {', '.join(known)}"
                raise UsageTypeError(told) from None
            made.check()
            return function(made)

        shown, kinds, said = inspect.signature(settings), _hints(Settings), words()
        parameters = [
            parameter.replace(
                annotation=kinds[name], default={} if repr(parameter.default) == "<factory>" else parameter.default
            )
            for name, parameter in shown.parameters.items()
        ]
        returns = inspect.signature(function).return_annotation
        called.__signature__ = shown.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]
        entries = [f"{one.name}{_default(one)}\n{_indented(said[one.name])}" for one in parameters]
        called.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", *entries])
        return called

    return decorate


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is parameter.empty else f" = {parameter.default!r}"


def _indented(words: str) -> str:
    return textwrap.fill(words, 100, initial_indent="    ", subsequent_indent="    ")
