"""What a member is composed of and how large its buffers are, checked once, with errors that name the key."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.ordering import ALIASES, ORDERINGS
from antiphon.protocol.parts import Ordering, Shaped, Stability
from antiphon.protocol.recovery import RecoveryOptions
from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.wire import PAYLOAD_BYTES_MAX, VECTOR_ENTRIES_MAX


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The composition of a member; every member of a group has the same."""

    group: str = "antiphon"
    ordering: str | type[Ordering] = "fifo"
    ordering_options: dict[str, Any] = {}
    stability: str | type[Stability] = "vector-ack"  # for orderings that run on recovery; the others bring their own
    stability_options: dict[str, Any] = {}
    recovery: RecoveryOptions = RecoveryOptions()
    window: int = 64  # own messages that may be unstable at once
    buffer: int = 0  # messages that a member can keep; 0: four windows for each member
    queue: int = 1024  # submissions that may wait for the window
    safe: bool = False  # deliver only what is stable
    payload_bytes_max: int = PAYLOAD_BYTES_MAX

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
        if self.payload_bytes_max > PAYLOAD_BYTES_MAX:
            raise UsageError(f"payload_bytes_max: at most {PAYLOAD_BYTES_MAX}, the room that a datagram has")
        if self.buffer and self.buffer < size * self.window:
            raise UsageError(
                f"buffer: {self.buffer} places cannot hold a window of {self.window} from each of {size} members; "
                f"give at least {size * self.window} or a smaller window"
            )
        ordering, stability = ordering_type(self.ordering), stability_type(self.stability)
        self.ordering_settings()
        if ordering.NEEDS_RECOVERY:
            options = options_of(stability, self.stability_options, "stability")
            if isinstance(options, Shaped) and founding:
                options.check(size)
            if counts_positions(options) and "total" not in ordering.PROMISES:
                raise UsageError(
                    f"stability: positions: {self.ordering} gives messages no common position; choose a total order"
                )
        elif self.safe and not getattr(ordering, "DELIVERS_STABLE", False):
            raise UsageError(
                f"safe: {self.ordering} learns that a message is stable from its delivery everywhere, so it cannot "
                f"wait for that; choose co, or an ordering that runs on recovery"
            )
        for key, value in msgspec.structs.asdict(self.recovery).items():
            if value < 1:
                raise UsageError(f"recovery.{key}: must be at least 1, not {value}")

    def ordering_settings(self) -> Any:
        """Give the ordering's options; one with its own flow control takes the window and the buffer from here."""
        ordering = ordering_type(self.ordering)
        known = {field.name for field in msgspec.structs.fields(ordering.Options)}
        asked = {"window": self.window, "buffer": self.buffer}
        asked = {key: value for key, value in asked.items() if key in known and value != getattr(_USUAL, key)}
        return options_of(ordering, {**asked, **self.ordering_options}, "ordering")

    def places(self, size: int) -> int:
        """Give the number of messages that a member can keep."""
        return self.buffer or 4 * self.window * size


_USUAL = Config()


def counts_positions(options: Any) -> bool:
    """Say whether a stability part is to be told positions in the total order instead of stream numbers."""
    return bool(getattr(options, "positions", False))


def ordering_type(name: str | type[Ordering]) -> type[Ordering]:
    """Find an ordering by its name, or take the caller's own."""
    if not isinstance(name, str):
        return name
    found = ORDERINGS.get(ALIASES.get(name, name))
    if found is None:
        raise UsageError(f"ordering: unknown {name!r}; choose from {', '.join([*ORDERINGS, *ALIASES])}")
    return found


def stability_type(name: str | type[Stability]) -> type[Stability]:
    """Find a stability protocol by its name, or take the caller's own."""
    if not isinstance(name, str):
        return name
    found = STABILITIES.get(name)
    if found is None:
        raise UsageError(f"stability: unknown {name!r}; choose from {', '.join(STABILITIES)}")
    return found


def options_of(part: type[Ordering] | type[Stability], given: dict[str, Any], where: str) -> Any:
    """Turn a table of options into the part's own `Options`, or say which key is wrong."""
    try:
        return msgspec.convert(given, part.Options)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(part.Options))
        raise UsageError(f"{where}: {error}; its options are: {known or 'none'}") from None
