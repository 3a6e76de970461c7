"""One description of a group, for whoever runs it: a live member, the simulator, the advisor, a replay, a test.

The defaults stand here and nowhere else. `PROFILES` are named values of them: `lan`, the defaults, is what a live group
runs; `wan` is for round trips of 100 ms and more; `paper` is what the papers print, where they print a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar, get_args

import msgspec

from antiphon.errors import UsageError, did_you_mean
from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.ordering import ALIASES, ORDERINGS
from antiphon.protocol.parts import Checked, Ordering, Shaped, Stability
from antiphon.protocol.recovery import Recovery, RecoveryOptions
from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.wire import PAYLOAD_BYTES_MAX, VECTOR_ENTRIES_MAX, Pdu

WINDOW_MAX: Final = 8_191  # four windows of each of the most members are as many slots as a datagram can tell of

# On a local network repeating costs little, and one that waits makes all wait; a small packet costs as much as a large.
_LAN_PARTS: Final[dict[str, Any]] = {
    "piggyback": True,
    "crowd": 8,
    "ask_ns_max": 50 * MILLISECOND,
    "ret_retry_ns_max": 40 * MILLISECOND,
    "probe_ns_max": 100 * MILLISECOND,
    "interval_ns_max": 200 * MILLISECOND,
    "timeout_ns_max": 100 * MILLISECOND,
    "pause_ns_max": 200 * MILLISECOND,
}


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The composition of a group; every member has the same."""

    group: str = "antiphon"
    ordering: str | type[Ordering] = "total"
    ordering_options: dict[str, Any] = {}
    stability: str | type[Stability] = "vector-ack"  # for orderings that run on recovery; the others bring their own
    stability_options: dict[str, Any] = {}
    part_defaults: dict[str, Any] = msgspec.field(default_factory=_LAN_PARTS.copy)  # where a part has such an option
    recovery: RecoveryOptions = RecoveryOptions()
    window: int = 64  # own messages that may be unstable at once
    buffer: int = 0  # messages that a member can keep; 0: four windows for each member
    queue: int = 2  # submissions that may wait for the window; few, since live they wait where bursts still grow
    safe: bool = False  # deliver only what is stable
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    views: bool = True  # whether members come and go; if not, all of them are waited for
    membership: MembershipOptions = MembershipOptions()

    def check(self, size: int, *, founding: bool = True) -> None:
        """Raise a `UsageError` unless a group of `size` members can work with this.

        Later views are of any size (`founding` false): there, shapes made for another size give way to the usual ones.
        """
        if not 1 <= size <= VECTOR_ENTRIES_MAX:
            raise UsageError(f"members: a group has 1 to {VECTOR_ENTRIES_MAX} members, not {size}")
        for key in ("window", "queue", "payload_bytes_max"):
            if getattr(self, key) < 1:
                raise UsageError(
                    f"{key}: must be at least 1, or nothing could ever be sent; it is {getattr(self, key)}"
                )
        if self.window > WINDOW_MAX:
            raise UsageError(f"window: must be at most {WINDOW_MAX}, not {self.window}")
        if self.payload_bytes_max > PAYLOAD_BYTES_MAX:
            raise UsageError(f"payload_bytes_max: at most {PAYLOAD_BYTES_MAX}, the room that a datagram has")
        if self.buffer and self.buffer < size * self.window:
            raise UsageError(
                f"buffer: {self.buffer} messages are fewer than a window of {self.window} from each of {size} members; "
                f"give at least {size * self.window} or a smaller window"
            )
        ordering, stability = ordering_type(self.ordering), stability_type(self.stability)
        settings = self.ordering_settings()
        _check_pauses(settings, "ordering.")
        if isinstance(settings, Checked):
            settings.check(size)
        _check_tags((*ordering.PDUS, *((*stability.PDUS, *Recovery.PDUS) if ordering.NEEDS_RECOVERY else ())))
        if ordering.NEEDS_RECOVERY:
            options = self.stability_settings()
            _check_pauses(options, "stability: ")
            if isinstance(options, Shaped) and founding:
                options.check(size)
            if counts_positions(options) and "total" not in ordering.PROMISES:
                name = part_name(self.ordering)
                raise UsageError(
                    f"stability: positions: {name} gives messages no common position; choose a total order"
                )
        elif self.safe and not getattr(ordering, "DELIVERS_STABLE", False):
            raise UsageError(
                f"safe: {part_name(self.ordering)} learns that a message is stable from its delivery everywhere, "
                f"so it cannot wait for that; choose co, or an ordering that runs on recovery"
            )
        for key, value in msgspec.structs.asdict(self.recovery).items():
            if value < 1 and not isinstance(value, bool):
                raise UsageError(f"recovery.{key}: must be at least 1, not {value}")
        _check_pauses(self.recovery, "recovery.")
        for key in ("nack_retry_ns", "heartbeat_ns"):
            if getattr(self.recovery, f"{key}_max") < getattr(self.recovery, key):
                raise UsageError(f"recovery.{key}_max: is below {key}, which is {getattr(self.recovery, key)}")
        if self.views:
            self.membership.check()

    def promises(self) -> list[str]:
        """Name the guarantees that a group of this composition gives."""
        ordering = ordering_type(self.ordering)
        stability = ("stability",) if ordering.NEEDS_RECOVERY else ()  # others say themselves whether they find it
        views = ("view-synchrony",) if self.views else ()
        return list(dict.fromkeys((*promises_of(ordering), *stability, *views)))

    def ordering_settings(self) -> Any:
        """Return the ordering's options; one with its own flow control takes the window and the buffer from here."""
        ordering = ordering_type(self.ordering)
        known = ordering.Options.__struct_fields__
        asked = {"window": self.window, "buffer": self.buffer}
        asked = {key: value for key, value in asked.items() if key in known and value != getattr(_LAN, key)}
        return self._settings(ordering, {**asked, **self.ordering_options}, "ordering")

    def stability_settings(self) -> Any:
        """Return the stability protocol's options."""
        return self._settings(stability_type(self.stability), self.stability_options, "stability")

    def _settings(self, part: type[Ordering] | type[Stability], given: dict[str, Any], where: str) -> Any:
        known = part.Options.__struct_fields__
        usual = {key: value for key, value in self.part_defaults.items() if key in known}
        return options_of(part, {**usual, **given}, where)

    def buffer_size(self, size: int) -> int:
        """Return the number of messages that a member can keep."""
        return self.buffer or 4 * self.window * size


_LAN: Final = GroupOptions()
_NUMBER_MAX: Final = 10**18  # of any option: nanoseconds of thirty years
_PAUSE_NS_MAX_MIN: Final = MILLISECOND  # the least that the longest pause between repetitions may be
_PAUSES_NS_MIN: Final = {  # pauses that do not grow, or that part those who would answer at once
    "silence_ns": MILLISECOND // 10,
}

PROFILES: Final[Mapping[str, GroupOptions]] = {
    "lan": _LAN,
    "wan": GroupOptions(
        part_defaults={
            "piggyback": True,
            "crowd": 8,
            "interval_ns": 50 * MILLISECOND,
            "timeout_ns": 500 * MILLISECOND,
            "timeout_ns_max": 2 * SECOND,
            "t_send_ns": 50 * MILLISECOND,
            "t_ack_ns": 50 * MILLISECOND,
            "ask_ns": 500 * MILLISECOND,
            "ask_ns_max": 2 * SECOND,
            "ret_grace_ns": 50 * MILLISECOND,
            "ret_retry_ns": 500 * MILLISECOND,
            "ret_retry_ns_max": 2 * SECOND,
            "probe_ns": 500 * MILLISECOND,
            "probe_ns_max": 2 * SECOND,
            "silence_ns": 200 * MILLISECOND,
            "silence_ns_max": SECOND,
            "repair_delay_ns": 100 * MILLISECOND,
        },
        recovery=RecoveryOptions(
            nack_delay_ns=50 * MILLISECOND,
            nack_retry_ns=500 * MILLISECOND,
            nack_retry_ns_max=2 * SECOND,
            heartbeat_ns=100 * MILLISECOND,
            heartbeat_ns_max=SECOND,
        ),
        membership=MembershipOptions(heartbeat_ns=250 * MILLISECOND, retry_ns=500 * MILLISECOND),
    ),
    "paper": GroupOptions(
        ordering="fifo",
        part_defaults={},
        recovery=RecoveryOptions(
            nack_delay_ns=5 * MILLISECOND,
            nack_retry_ns=20 * MILLISECOND,
            nack_retry_ns_max=SECOND,
            heartbeat_ns_max=SECOND,
            adaptive=False,
        ),
        queue=1024,
        views=False,
        membership=MembershipOptions(heartbeat_ns=100 * MILLISECOND),
    ),
}


def _check_pauses(options: msgspec.Struct, where: str) -> None:
    """Raise a `UsageError` if what is said again would be said so often that no answer had time to come."""
    for key in options.__struct_fields__:
        least = _PAUSE_NS_MAX_MIN if key.endswith("_ns_max") else _PAUSES_NS_MIN.get(key, 0)
        if least and getattr(options, key) < least:
            raise UsageError(
                f"{where}{key}: {getattr(options, key)} ns; what is said again more often than every {least} ns "
                f"leaves no time for an answer"
            )


def profile_of(name: str) -> GroupOptions:
    """Return the profile of that name, or raise a `UsageError`."""
    if name not in PROFILES:
        raise UsageError(f"profile: unknown {name!r}; choose from {', '.join(PROFILES)}")
    return PROFILES[name]


def promises_of(ordering: type[Ordering]) -> tuple[str, ...]:
    """Name the guarantees that an ordering gives by itself, whatever it is composed with."""
    return ("integrity", "validity", "agreement", *ordering.PROMISES)


def counts_positions(options: Any) -> bool:
    """Say whether a stability part is to be told positions in the total order instead of stream numbers."""
    return bool(getattr(options, "positions", False))


def ordering_type(name: str | type[Ordering]) -> type[Ordering]:
    """Find an ordering by its name, import `package.module:Class`, or take the caller's own."""
    return _part_type(name, ORDERINGS, ALIASES, "ordering", ("PROMISES", "NEEDS_RECOVERY", "submit", "finish"))


def ignores_lifetimes(name: str | type[Ordering]) -> bool:
    """Say whether one of our orderings takes no notice of lifetimes and priorities; a caller's own may."""
    is_ours = isinstance(name, str) and ALIASES.get(name, name) in ORDERINGS
    return is_ours and "lag" not in ordering_type(name).Options.__struct_fields__


def stability_type(name: str | type[Stability]) -> type[Stability]:
    """Find a stability protocol by its name, import `package.module:Class`, or take the caller's own."""
    return _part_type(name, STABILITIES, {}, "stability", ("stamp", "advanced"))


def part_name(part: str | type[Ordering] | type[Stability]) -> str:
    """Give a protocol's name; a class of the caller's own is named as it would be imported."""
    return part if isinstance(part, str) else f"{part.__module__}:{part.__qualname__}"


_Part = TypeVar("_Part", type[Ordering], type[Stability])


def _part_type(
    name: str | _Part, known: Mapping[str, _Part], aliases: Mapping[str, str], where: str, needed: tuple[str, ...]
) -> _Part:
    if isinstance(name, str):
        found = known.get(aliases.get(name, name))
        if found is not None:
            return found
        if ":" not in name:
            names = ", ".join([*known, *aliases])
            near = did_you_mean(name, [*known, *aliases])
            raise UsageError(f"{where}: unknown {name!r}{near}; choose from {names}, or write package.module:Class")
    part: Any = _imported(name, where) if isinstance(name, str) else name
    lacks = [word for word in ("PDUS", "Options", *needed) if not hasattr(part, word)]
    if lacks:
        interface = where.capitalize()
        raise UsageError(f"{where}: {part_name(part)} has no {lacks[0]}; see antiphon.protocol.parts.{interface}")
    if not _is_class_of(msgspec.Struct, part.Options):
        raise UsageError(f"{where}: the Options of {part_name(part)} must be a class of msgspec.Struct")
    if not isinstance(part.PDUS, tuple) or not all(_is_class_of(Pdu, kind) for kind in part.PDUS):
        raise UsageError(f"{where}: the PDUS of {part_name(part)} must be a tuple of classes of Pdu")
    return part  # type: ignore[no-any-return]


def _is_class_of(base: type, found: object) -> bool:
    return isinstance(found, type) and issubclass(found, base)


def _imported(name: str, where: str) -> type:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for word in path.split("."):
            found = getattr(found, word)
    except (ImportError, ValueError, AttributeError) as error:
        raise UsageError(f"{where}: {name} cannot be imported: {error}; write package.module:Class") from None
    except Exception as error:  # whatever that module does when it is imported
        raise UsageError(f"{where}: {name} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise UsageError(f"{where}: {name} is no class; write package.module:Class")
    return found


def _check_tags(kinds: Iterable[type[Pdu]]) -> None:
    """Raise a `UsageError` unless PDUs of these kinds can be told apart."""
    by_tag: dict[object, type[Pdu]] = {}
    for kind in kinds:
        tag = kind.__struct_config__.tag
        other = by_tag.setdefault(tag, kind)
        if other is not kind:
            raise UsageError(
                f"PDUS: {kind.__qualname__} and {other.__qualname__} both have the tag {tag}; give yours one above 199"
            )


def options_of(part: type[Ordering] | type[Stability], given: dict[str, Any], where: str) -> Any:
    """Turn a table of options into the part's own `Options`, or say which key is wrong."""
    known = part.Options.__struct_fields__
    for key in given:
        if key not in known:
            told = f"its options are {', '.join(known)}" if known else "it has none"
            name = key if str(key).isidentifier() else f"{key!r:.40}"
            raise UsageError(f"{where}.{name}: no such option{did_you_mean(str(key), known)}; {told}")
    try:
        made = msgspec.convert(given, part.Options)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `$.")
        key = at.removesuffix("`").partition("[")[0]
        choices = [get_args(field.type) for field in msgspec.structs.fields(part.Options) if field.name == key]
        if "enum" in said:
            said = f"one of {', '.join(map(str, choices[0]))}"
        got = "" if "got" in said else f", not {given[key]!r:.40}"
        raise UsageError(f"{where}.{key}: {said[:1].lower()}{said[1:]}{got}") from None
    except UnicodeEncodeError as error:
        raise UsageError(f"{where}: {error.object!r:.40} is no text: half of a surrogate pair stands alone") from None
    for key in known:
        value = getattr(made, key)
        if isinstance(value, int) and value > _NUMBER_MAX:
            raise UsageError(f"{where}.{key}: must be at most {_NUMBER_MAX}, not {value}")
    return made
