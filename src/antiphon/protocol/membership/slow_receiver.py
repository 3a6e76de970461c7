"""Who holds all back, and what is done about it: three policies.

`block`: the windows fill and all wait for it. `drop`: it is left out of the next view. `lag`: messages live for a time;
what has outlived it does not count against a window any more, and who still lacks it discards it. Only if there is no
room even for the stamps of what it lacks is it left out, as with `drop`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import Duration, Instant, Submit
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.timing import Times
from antiphon.protocol.membership.views import GroupView, name_of
from antiphon.protocol.options import GroupOptions, ordering_type
from antiphon.protocol.parts import message_times
from antiphon.protocol.view.member import Member

_LAGGING_WINDOWS = 3  # beside the one of what is alive: four in all, as many as a member has slots for


def fitted(config: GroupOptions, options: MembershipOptions) -> GroupOptions:
    """Return the options with what the policy needs, or raise a `UsageError` that says why they cannot have it."""
    if options.slow != "lag":
        return config
    ordering = ordering_type(config.ordering)
    if "lag" not in ordering.Options.__struct_fields__:
        raise UsageError(
            f"membership.slow: {config.ordering} has no lifetimes, so nothing can be discarded for who lags; "
            f"choose block, drop, or the ordering causal-blocks"
        )
    return msgspec.structs.replace(
        config, ordering_options={"lag": _LAGGING_WINDOWS * config.window, **config.ordering_options}
    )


def waited_for(member: Member, lag: Mapping[int, int | None], full: Collection[int]) -> dict[int, float]:
    """Say who may hold all others back, and how much each lacks as far as is known; infinity: not heard from.

    If some say that their application is `full`, it is they. How much another member lacks is known to few; where
    reports are passed on, a member that waits for another's report looks like the one that is waited for.
    """
    lacking = {other: inf if lacks is None else lacks for other, lacks in lag.items()}
    return {other: lacking.get(other, 0) for other in full if member.held} or lacking


def round_of(member: Member) -> int:
    """Say how many message times it takes a member's stability protocol to find out what is stable."""
    return message_times(member.ordering if member.stability is None else member.stability)


class SlowReceiverPolicy:
    """Watches whether what is held becomes stable, and accuses whoever prevents it where the policy says so."""

    def __init__(self, options: MembershipOptions, now: Instant) -> None:
        self._options = options
        self.limits = options.slow == "lag"  # whether messages are given a lifetime
        self.begin(now)

    def begin(self, now: Instant) -> None:
        """Begin a view, in which nobody is slow yet."""
        self.stable_at = now  # when something became stable, or nothing was held
        self.accused: frozenset[int] = frozenset()  # too slow to wait for

    def lifetime_ns(self, view: GroupView, times: Times) -> Duration | None:
        """Return how long a message is worth waiting for in a view; None: until everyone has it."""
        return times.lifetime_ns(view.names) if self.limits else None

    def limited(self, message: Submit, view: GroupView, times: Times) -> Submit:
        """Give a message the lifetime that the policy allows it."""
        most_ns = self.lifetime_ns(view, times)
        if most_ns is None:
            return message
        return msgspec.structs.replace(message, lifetime_ns=min(message.lifetime_ns or most_ns, most_ns))

    def watch(
        self, member: Member, active: bool, view: GroupView, full: Collection[int], times: Times, now: Instant
    ) -> None:
        """Accuse who lacks most, if nothing has become stable for too long and the others decide for the view."""
        policy = self._options.slow
        self.stable_at = max(self.stable_at, member.output.stable_at)
        if not active or member.held == 0 or (policy == "lag" and not member.stuck):
            self.stable_at = now
        elif policy != "block" and now - self.stable_at > times.slow_ns(view.names, round_of(member)):
            lag = waited_for(member, member.lag(), full)
            slow = frozenset(other for other, lacks in lag.items() if lacks == max(lag.values()))
            if view.is_quorum({name_of(other) for other in view.members if other not in slow}):
                self.accused = slow  # else it is rather this process that is cut off
            self.stable_at = now
