"""The members' own parts on the LAN model: the same hops, queues and nanoseconds as the reference."""

import pytest

from antiphon.sim.lan import ROUND_PROTOCOLS, Lan, run_round
from antiphon.sim.part_hosts import part_hosts
from antiphon.sim.trees import Tree, filled, near_complete, random_tree

TREES = [
    near_complete(2, 5, 1),
    near_complete(3, 3, 2),
    near_complete(1, 4, 1),
    near_complete(5, 1, 5),
    filled(23, 2),
    filled(2, 1),
    random_tree(60, 2, 4, seed=3),
    random_tree(100, 3, 3, seed=1),
    Tree([3, 0, 0, -1, 3, 4]),
]


@pytest.mark.parametrize("stability", ROUND_PROTOCOLS)
@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_parts_equal_the_reference_hop_for_hop_and_nanosecond_for_nanosecond(tree: Tree, stability: str) -> None:
    assert run_round(tree, stability, "parts") == run_round(tree, stability, "objects")


@pytest.mark.parametrize("stability", ROUND_PROTOCOLS)
def test_a_round_ends_at_every_member_with_the_frontier_and_in_silence(stability: str) -> None:
    tree = near_complete(3, 3, 2)
    hosts = part_hosts(tree, stability)
    Lan(tree).run(hosts)
    stable = (1,) + (0,) * (len(tree) - 1)
    assert [host.frontier for host in hosts] == [stable] * len(tree)


@pytest.mark.parametrize(
    ("stability", "rtt_ns", "hops"),
    [
        ("coordinator", 1_478_848_505, 9_100),
        ("train", 6_641_111_555, 7_208),
        ("tree-coordinator", 34_823_921, 4_092),
        ("tree-train", 77_754_371, 5_115),
    ],
)
def test_the_figures_of_1365_members(stability: str, rtt_ns: int, hops: int) -> None:
    outcome = run_round(near_complete(4, 5, 4), stability, "parts")
    assert (outcome.rtt_ns, outcome.traffic.hops) == (rtt_ns, hops)
