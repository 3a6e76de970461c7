"""Trees: the paper's numbering, its random construction, and what is refused."""

from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.sim.trees import Tree, filled, group_size, near_complete, parse_tree, random_tree, read_parents

# Table 3: group sizes for height 5.
TABLE_3 = {
    (2, 1): 47,
    (2, 2): 63,
    (3, 1): 202,
    (3, 2): 283,
    (3, 3): 364,
    (4, 1): 597,
    (4, 2): 853,
    (4, 3): 1109,
    (4, 4): 1365,
}


@pytest.mark.parametrize(("degrees", "n"), TABLE_3.items())
def test_near_complete_trees_have_the_sizes_of_table_3(degrees: tuple[int, int], n: int) -> None:
    b, z = degrees
    tree = near_complete(b, 5, z)
    assert len(tree) == group_size(b, 5, z) == n
    assert tree.height == 5
    assert {len(tree.children[node]) for node in range(n) if tree.depths[node] < 4} == {b}
    assert {len(tree.children[node]) for node in range(n) if tree.depths[node] == 4} == {z}


def test_numbering_goes_level_by_level() -> None:
    assert near_complete(2, 2, 1).parents == (-1, 0, 0, 1, 2)
    assert near_complete(1, 3, 1).parents == (-1, 0, 1, 2)
    assert near_complete(5, 1, 3).parents == (-1, 0, 0, 0)
    assert near_complete(3, 3, 2).order == list(range(group_size(3, 3, 2)))
    assert filled(1365, 4).parents == near_complete(4, 5, 4).parents


def test_the_circle_alternates_its_direction_by_level() -> None:
    assert near_complete(2, 3, 2).circle == [0, 1, 2, 6, 5, 4, 3, *range(7, 15)]
    following = near_complete(2, 2, 2).circle_next
    assert [following[node] for node in (0, 1, 2, 6, 5, 4, 3)] == [1, 2, 6, 5, 4, 3, 0]


def test_paths_and_distances() -> None:
    tree = near_complete(2, 3, 2)
    assert tree.path(7, 14) == [7, 3, 1, 0, 2, 6, 14]
    assert tree.path(0, 9) == [0, 1, 4, 9]
    assert tree.path(9, 1) == [9, 4, 1]
    assert tree.path(3, 3) == [3]
    for u in range(len(tree)):
        for v in range(len(tree)):
            assert tree.distance(u, v) == len(tree.path(u, v)) - 1
            assert tree.path(u, v) == tree.path(v, u)[::-1]


def test_the_root_may_be_anywhere() -> None:
    tree = Tree([2, 2, -1, 0])
    assert tree.root == 2
    assert tree.order == [2, 0, 1, 3]
    assert tree.depths == [1, 1, 0, 2]
    assert tree.circle == [2, 0, 1, 3]


def test_random_trees_follow_the_corrected_construction() -> None:
    b, p, n = 4, 5, 1365
    trees = [random_tree(n, b, p, seed) for seed in range(30)]
    assert random_tree(n, b, p, 3).parents == trees[3].parents != trees[4].parents
    for tree in trees:
        assert len(tree) == n
        assert tree.height == p
        assert all(tree.parents[node] < node for node in range(1, n))
    for level in range(1, p):
        mean = sum(tree.depths.count(level) for tree in trees) / len(trees)
        assert mean == pytest.approx(b**level, rel=0.25)
    # The lowest level gets what is left: n - (b^p - 1)/(b - 1). With the printed exponent p + 1 that would be 0 here.
    mean = sum(tree.depths.count(p) for tree in trees) / len(trees)
    assert mean == pytest.approx(n - 341, rel=0.05)


def test_a_random_tree_hangs_together_even_where_a_level_stayed_empty() -> None:
    for seed in range(200):
        tree = random_tree(16, 2, 4, seed)
        assert len(tree) == 16
        assert tree.height <= 4


def test_a_parents_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "parents.txt"
    path.write_text("-1\n0\n0\n1\n\n")
    assert read_parents(path).parents == (-1, 0, 0, 1)
    assert parse_tree(str(path)).parents == (-1, 0, 0, 1)
    assert parse_tree("4,5,4").parents == near_complete(4, 5, 4).parents


@pytest.mark.parametrize(
    ("parents", "complaint"),
    [
        ([], "0 node"),
        ([-1], "at least two"),
        ([-1, -1], "nodes 0 and 1 both have parent -1"),
        ([1, 0], "no node has parent -1"),
        ([-1, 2, 1], "form a cycle"),
        ([-1, 1], "form a cycle"),
        ([-1, 0, 3], "node 2 has parent 3"),
        ([-1, -2], "node 1 has parent -2"),
    ],
)
def test_what_is_no_tree_is_refused(parents: list[int], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refusal:
        Tree(parents)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "degrees", [(0, 5, 1), (2, 0, 1), (2, 5, 0), (2, 5, -1), (2, 5, 3), (-1, 5, 1), (2, 99, 1), (9, 9, 9)]
)
def test_impossible_degrees_are_refused(degrees: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="tree"):
        near_complete(*degrees)


@pytest.mark.parametrize(("n", "b", "p"), [(31, 2, 5), (10, 0, 2), (10, 2, 0), (10**9, 2, 3)])
def test_impossible_random_trees_are_refused(n: int, b: int, p: int) -> None:
    with pytest.raises(UsageError, match="random tree"):
        random_tree(n, b, p, seed=1)


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "4,5,4,4", "nowhere.txt", "", "4;5;4"])
def test_a_tree_that_is_neither_degrees_nor_a_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="tree"):
        parse_tree(text)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty file"),
        (b"\n\n", "empty file"),
        (b"-1\nzero\n", "line 2: 'zero'"),
        (b"-1\n0 0\n", "line 2"),
        (b"\xff\xfe", "not a text file"),
    ],
)
def test_bad_parents_files_are_refused_by_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "parents.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint):
        read_parents(path)
