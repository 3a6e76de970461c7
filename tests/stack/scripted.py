"""Schedules made by hand that ask for something each; a seed chooses what else happens."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.testing.torture.schedule import Net, PlannedFault, Schedule, Setup, Work


def schedule(**about: Any) -> Schedule:
    """Give a schedule that ends as soon as all has gone on and is known."""
    return Schedule(**{"lingers": False, **about})


ORDERS: Final = ("fifo", "sequencer", "causal-blocks", "abcast", "co", "tomp")


def busy(seed: int, **setup: Any) -> Schedule:
    """Three that send all the time, of which one crashes and comes back, and one is cut off for a while."""
    work = Work(messages=90, pause_ms=25)
    return schedule(
        seed=seed,
        setup=Setup(**{"ordering": ORDERS[seed % 6], "snapshot_bytes": 0, **setup}),
        work=(work, msgspec.structs.replace(work, batches=bool(seed % 2)), work),
        faults=(
            PlannedFault(kind="crash", at=400 + 40 * seed, until=900, members=(1,)),
            PlannedFault(kind="partition", at=1_500 + 10 * seed, until=2_700, members=(2,)),
        ),
    )


def asking(seed: int) -> Schedule:
    """The same, and all ask for their receipts again and again."""
    asked = busy(seed)
    work = tuple(msgspec.structs.replace(one, asks_ms=10) for one in asked.work)
    return msgspec.structs.replace(asked, work=work)


def heavy(seed: int) -> Schedule:
    """Large messages, in parts, while a member joins."""
    heavy_work = Work(messages=30, pause_ms=0, size=250_000)
    return schedule(
        seed=seed,
        setup=Setup(ordering=ORDERS[seed % 2], snapshot_bytes=0, window=2),  # type: ignore[arg-type]
        work=(heavy_work, heavy_work, Work(start_ms=400 + 37 * seed)),
    )


def cancelled(seed: int) -> Schedule:
    """An application gives up its iterator and takes another."""
    faults = tuple(PlannedFault(kind="cancel", at=at, until=at, members=(0,)) for at in (200, 400, 600))
    return msgspec.structs.replace(busy(seed), faults=faults)


def cancelled_while_it_restores(seed: int) -> Schedule:
    """One comes back and takes in the state for a while, in which it gives up its iterator and takes another."""
    work, many = Work(messages=60, pause_ms=25, restore_ms=400), range(1_000, 2_200, 100)
    faults = tuple(PlannedFault(kind="cancel", at=at + seed, until=at + seed, members=(1,)) for at in many)
    crash = PlannedFault(kind="crash", at=400, until=900, members=(1,))
    return schedule(seed=seed, setup=Setup(snapshot_bytes=0), work=(work, work, work), faults=(crash, *faults))


def rotated_slowly(seed: int) -> Schedule:
    """The key is replaced, and each step takes all of them as long as it takes to be suspected."""
    faults = (PlannedFault(kind="keys", at=300 + 10 * seed, until=6_300, members=(0,)),)
    return msgspec.structs.replace(busy(seed, key=True), faults=faults)


def rotated(seed: int) -> Schedule:
    """The key is replaced, and a member comes back after that."""
    faults = (
        PlannedFault(kind="keys", at=300, until=800, members=(0,)),
        PlannedFault(kind="crash", at=1_000, until=1_800, members=(1,)),
    )
    return msgspec.structs.replace(busy(seed, key=True), faults=faults)


def found(seed: int) -> Schedule:
    """Members that find each other, one of them late."""
    return schedule(
        seed=seed, setup=Setup(discover="multicast", snapshot_bytes=0), work=(Work(), Work(), Work(start_ms=2_500))
    )


def searching(seed: int) -> Schedule:
    """One never hears the only one that it may ask for the group."""
    faults = (PlannedFault(kind="cut", at=0, members=(0,), others=(2,)),)
    return schedule(seed=seed, setup=Setup(discover="peers", snapshot_bytes=0), faults=faults)


def parted(seed: int) -> Schedule:
    """One is cut off for good."""
    return msgspec.structs.replace(busy(seed), faults=(PlannedFault(kind="partition", at=700, members=(2,)),))


def crashed(seed: int) -> Schedule:
    """Most of the group crash at once, and come back."""
    faults = (PlannedFault(kind="crash", at=600 + 40 * seed, until=1_200, members=(1, 2)),)
    return msgspec.structs.replace(busy(seed), faults=faults)


def powerless(seed: int) -> Schedule:
    """The machines of most of the group lose their power at once."""
    faults = tuple(msgspec.structs.replace(fault, power=True) for fault in crashed(seed).faults)
    return msgspec.structs.replace(crashed(seed), faults=faults)


def started_again(seed: int) -> Schedule:
    """Without views, one crashes in the middle of work and is started again."""
    faults = (PlannedFault(kind="crash", at=1_500, until=1_800 + 40 * seed, members=(seed % 3,)),)
    return msgspec.structs.replace(busy(seed, views=False, snapshot_bytes=None), faults=faults)


def leaving(seed: int) -> Schedule:
    """One leaves while it sends."""
    return msgspec.structs.replace(busy(seed), faults=(PlannedFault(kind="leave", at=500, members=(1,)),))


def deaf(seed: int) -> Schedule:
    """One does not read for a while, with a small inbox."""
    work = Work(messages=400, pause_ms=0, size=1_000, many=5)
    reader = Work(messages=0, size=1_000, deaf_ms=(300 + seed, 4_000))
    return schedule(
        seed=seed,
        setup=Setup(ordering="fifo", window_bytes=4_000, inbox_bytes_max=2_000),
        work=(work, work, reader),
    )


def paused(seed: int) -> Schedule:
    """The sequencer stands still for longer than suspicion, in the middle of much work."""
    work = Work(messages=300, pause_ms=5)
    return schedule(
        seed=seed,
        setup=Setup(snapshot_bytes=0),
        work=(work, work, work),
        faults=(PlannedFault(kind="pause", at=700 + 10 * seed, until=2_000, members=(0,)),),
    )


def behind(seed: int) -> Schedule:
    """One joins again while much is sent: what comes after its state waits behind it."""
    work = Work(messages=200, pause_ms=5)
    faults = (PlannedFault(kind="crash", at=300 + 20 * seed, until=500, members=(2,)),)
    return schedule(seed=seed, setup=Setup(snapshot_bytes=300_000), work=(work, work, Work(messages=0)), faults=faults)


def ignored(seed: int, **setup: Any) -> Schedule:
    """One does not read for longer than its group is to wait for it."""
    work = Work(messages=120, pause_ms=40, size=300)
    reader = Work(messages=0, size=300, deaf_ms=(400 + seed, 9_000))
    policy = {"ordering": "fifo", "slow": "drop", "window_bytes": 4_000, "inbox_bytes_max": 2_000, "snapshot_bytes": 0}
    return schedule(seed=seed, setup=Setup(**{**policy, **setup}), work=(work, work, reader))


def ignored_without_state(seed: int) -> Schedule:
    """The same, where it needs no state to be let in again."""
    return ignored(seed, snapshot_bytes=None)


def lagging(seed: int) -> Schedule:
    """The same, where the slow one stays, and misses what is too old for it."""
    return ignored(seed, ordering="causal-blocks", slow="lag", window=16)


def held_up(seed: int) -> Schedule:
    """The same, where all wait for it."""
    return ignored(seed, slow="block")


def sides(seed: int) -> Schedule:
    """Two of five are cut off for a while, and each side goes on."""
    work = (Work(messages=60, pause_ms=40),) * 5
    faults = (PlannedFault(kind="partition", at=700 + 10 * seed, until=2_500, members=(0, 1)),)
    setup = Setup(ordering=ORDERS[seed % 6], partition="each-side", snapshot_bytes=0)  # type: ignore[arg-type]
    return schedule(seed=seed, setup=setup, work=work, faults=faults)


def sides_for_good(seed: int) -> Schedule:
    """Two of five are cut off for ever, and each side goes on."""
    faults = (PlannedFault(kind="partition", at=700 + 10 * seed, members=(0, 1)),)
    return msgspec.structs.replace(sides(seed), faults=faults)


def halves(seed: int) -> Schedule:
    """Two of four are cut off for a while, of whom only those with the first member may go on."""
    return msgspec.structs.replace(sides(seed), setup=Setup(snapshot_bytes=0), work=sides(seed).work[:4])


def left_without_an_answer(seed: int) -> Schedule:
    """One is cut off with more to send than there is room for, and leaves."""
    work = Work(messages=100, pause_ms=10, size=20_000)
    faults = (
        PlannedFault(kind="partition", at=600 + 10 * seed, members=(1,)),
        PlannedFault(kind="leave", at=900 + 10 * seed, members=(1,)),
    )
    return schedule(
        seed=seed,
        setup=Setup(snapshot_bytes=0, window=2, window_bytes=4_000),
        work=(Work(), work, Work()),
        faults=faults,
    )


def in_pieces(seed: int) -> Schedule:
    """All are cut off from one another for a moment, so that nobody can go on without the others."""
    faults = tuple(PlannedFault(kind="partition", at=700 + 10 * seed, until=1_600, members=(one,)) for one in (0, 1))
    return msgspec.structs.replace(busy(seed), faults=faults)


def stale_key(seed: int) -> Schedule:
    """The key is replaced by all but one."""
    faults = (PlannedFault(kind="keys", at=300 + 10 * seed, until=900, members=(1,), stale=True),)
    return msgspec.structs.replace(busy(seed, key=True), faults=faults)


def found_with_a_new_key(seed: int) -> Schedule:
    """The key is replaced in a group whose members find each other, and one that knows nobody is started after that."""
    faults = (
        PlannedFault(kind="keys", at=1_500, until=2_100, members=(0,)),
        PlannedFault(kind="crash", at=2_400 + 10 * seed, until=2_600, members=(1,), forgets=True),
    )
    setup = Setup(discover="multicast", snapshot_bytes=0, key=True)
    return schedule(seed=seed, setup=setup, work=(Work(), Work(), Work()), faults=faults)


def replayed(seed: int) -> Schedule:
    """One is started again, and then all that it and the others said before is said again by a stranger."""
    faults = (
        PlannedFault(kind="crash", at=600, until=800, members=(1,)),
        PlannedFault(kind="replay", at=1_000 + 10 * seed, until=3_500, members=(0,)),
    )
    return msgspec.structs.replace(busy(seed, key=True), faults=faults)


def set_up_differently(seed: int) -> Schedule:
    """The last of four has another stability protocol."""
    setup = Setup(ordering="fifo", snapshot_bytes=0)
    odd = msgspec.structs.replace(setup, stability="train", safe=True)
    return schedule(seed=seed, setup=setup, odd=odd, work=(Work(messages=20),) * 4)


def two_votes(seed: int) -> Schedule:
    """One decides with another without the third, comes back with a state that knows nothing of it, to the third."""
    faults = (
        PlannedFault(kind="crash", at=700, until=2_200, members=(0,)),
        PlannedFault(kind="partition", at=4_500, until=6_500, members=(2,)),
        PlannedFault(kind="partition", at=6_500, until=9_500, members=(0,)),
        PlannedFault(kind="crash", at=6_500, until=6_600 + 50 * seed, members=(1,), old_ms=5_900, lies=seed % 2 == 1),
    )
    work = Work(messages=240, pause_ms=40)
    return schedule(seed=seed, setup=Setup(snapshot_bytes=0), work=(work,) * 3, faults=faults)


def alone_again(seed: int) -> Schedule:
    """One that was alone for a while lets the other in again, and comes back with what it knew when it was alone."""
    faults = (
        PlannedFault(kind="crash", at=900, until=3_000, members=(1,)),
        PlannedFault(kind="crash", at=5_000, until=5_020 + 50 * seed, members=(0,), old_ms=2_300),
    )
    work = Work(messages=150, pause_ms=40)
    return schedule(seed=seed, setup=Setup(snapshot_bytes=0), work=(work, work), faults=faults)


def started_often(seed: int) -> Schedule:
    """One was started more often than the state knows with which it is started again."""
    faults = (
        PlannedFault(kind="crash", at=900, until=1_800, members=(2,)),
        PlannedFault(kind="crash", at=2_600, until=3_500, members=(2,)),
        PlannedFault(kind="crash", at=5_000, until=7_000 + 100 * seed, members=(2,), old_ms=4_300),
    )
    return msgspec.structs.replace(busy(seed), faults=faults)


def founded_apart(seed: int) -> Schedule:
    """Nobody says how many found the group, and one of three is alone when it looks for it."""
    faults = (PlannedFault(kind="partition", at=0, until=2_500 + 100 * seed, members=(seed % 3,)),)
    setup = Setup(discover="multicast", undeclared=True, snapshot_bytes=0)
    return schedule(seed=seed, setup=setup, work=(Work(messages=60),) * 3, faults=faults)


def founded_by_one_who_waits(seed: int) -> Schedule:
    """The same, where one waits for another with whom it wants to found a group, and which has founded one alone."""
    faults = (PlannedFault(kind="partition", at=520, until=4_500 + 100 * seed, members=(0,)),)
    setup = Setup(discover="multicast", undeclared=True, snapshot_bytes=0)
    return schedule(seed=seed, setup=setup, work=(Work(messages=30),) * 2, faults=faults)


def timed(seed: int) -> Schedule:
    """One crashes for good, in a group whose members were told after what time one is dead."""
    faults = (PlannedFault(kind="crash", at=700 + 10 * seed, members=(1,)),)
    return msgspec.structs.replace(busy(seed, suspect_ms=1_000, fixed_times=True), faults=faults)


def slow_links(seed: int) -> Schedule:
    """Members that have more to say than their links carry."""
    work = Work(messages=200, pause_ms=0, size=1_000)
    setup = Setup(ordering="fifo", snapshot_bytes=0, window_bytes=25_000, suspect_ms=4_000)
    return schedule(seed=seed, setup=setup, net=Net(bandwidth=2_000_000), work=(work,) * 3)
