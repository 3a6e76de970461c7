"""The compiled kernels equal the event-driven model in every figure, to the nanosecond."""

import random
import subprocess
import sys

import pytest

from antiphon.sim.lan import ROUND_PROTOCOLS, Lan, LanMessage, LanSend, message_bytes, run_round
from antiphon.sim.trees import Tree, filled, near_complete, random_tree

pytest.importorskip("numba")
from antiphon.sim import kernels


def assert_equal_engines(tree: Tree, stabilities: tuple[str, ...] = tuple(ROUND_PROTOCOLS)) -> None:
    for stability in stabilities:
        assert run_round(tree, stability, "kernel") == run_round(tree, stability, "objects"), (tree, stability)


TREE_PROTOCOLS = tuple(name for name in ROUND_PROTOCOLS if name != "full-distribution")


@pytest.mark.slow
@pytest.mark.parametrize(("b", "z"), [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
def test_table_3(b: int, z: int) -> None:
    assert_equal_engines(near_complete(b, 5, z))


@pytest.mark.parametrize("z", [1, 2, 3, 4])
def test_table_3_of_degree_four(z: int) -> None:
    assert_equal_engines(near_complete(4, 5, z), TREE_PROTOCOLS)


@pytest.mark.slow
def test_full_distribution_among_597() -> None:
    assert_equal_engines(near_complete(4, 5, 1), ("full-distribution",))


@pytest.mark.parametrize(
    "degrees",
    [
        (2, 4, 1),
        (2, 3, 2),
        (3, 4, 2),
        (6, 3, 1),
        (5, 2, 3),
        (1, 1, 1),
        (2, 1, 1),
        (1, 9, 1),
        (1, 120, 1),
        (9, 1, 9),
        (150, 1, 150),
    ],
)
def test_other_trees_chains_and_stars(degrees: tuple[int, int, int]) -> None:
    assert_equal_engines(near_complete(*degrees))


@pytest.mark.parametrize("seed", range(3))
def test_the_papers_random_trees(seed: int) -> None:
    assert_equal_engines(random_tree(150 + 60 * seed, 3, 5, seed))


@pytest.mark.parametrize("seed", range(60))
def test_any_tree_however_its_nodes_are_numbered(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randrange(2, 110)
    reach = rng.choice([1, 3, 10, n])  # how far back a parent may lie: from chains to bushes
    parents = [-1] + [rng.randrange(max(0, node - reach), node) for node in range(1, n)]
    label = list(range(n))
    rng.shuffle(label)
    shuffled = [0] * n
    for node, parent in enumerate(parents):
        shuffled[label[node]] = -1 if parent < 0 else label[parent]
    assert_equal_engines(Tree(shuffled))


def test_full_distribution_among_1365_has_the_known_figures() -> None:
    outcome = run_round(near_complete(4, 5, 4), "full-distribution", "kernel")
    assert outcome.rtt_ns == 1_477_220_354
    assert outcome.traffic.hops == 1_861_860
    assert outcome.traffic.link_queue_max == 679


class Burst:
    """A host that multicasts at time 0."""

    def __init__(self, n: int) -> None:
        self.size = message_bytes(n)

    def on_start(self, now: int) -> list[LanSend]:
        return [LanSend(None, self.size, "INFO")]

    def on_receive(self, message: LanMessage, now: int) -> list[LanSend]:
        return []


@pytest.mark.parametrize("tree", [near_complete(3, 4, 2), near_complete(1, 40, 1), random_tree(120, 3, 4, 1)], ids=str)
def test_a_burst_of_everyone(tree: Tree) -> None:
    hosts = [Burst(len(tree)) for _ in range(len(tree))]
    assert kernels.run_burst(tree) == Lan(tree).run(hosts)


def test_a_burst_of_1365_ends_when_other_simulators_say() -> None:
    assert kernels.run_burst(near_complete(4, 5, 4)).ended_ns == 1_477_423_275


def test_large_trees_count_as_the_formulas_do() -> None:
    n = 20_000
    tree = filled(n, 4)
    assert run_round(tree, "coordinator").traffic.hops == sum(tree.depths) + 2 * (n - 1)
    assert run_round(tree, "tree-coordinator").traffic.hops == 3 * (n - 1)
    assert run_round(filled(3000, 4), "full-distribution").traffic.hops == 3000 * 2999


def test_without_numba_the_kernels_say_what_to_install() -> None:
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from antiphon.errors import UsageError\n"
        "from antiphon.sim.lan import run_round\n"
        "from antiphon.sim.trees import near_complete\n"
        "try: run_round(near_complete(2, 2, 2), 'train', 'kernel')\n"
        "except UsageError as error: print(error)\n"
        "print(run_round(near_complete(7, 3, 7), 'full-distribution', 'auto').traffic.hops)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    complaint, hops = done.stdout.splitlines()
    assert "antiphon[fast]" in complaint
    assert hops == str(400 * 399)
