"""The hierarchical stability paper: closed formulas against counting, the trigger, the claims, the command."""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from antiphon.cli import main
from antiphon.papers.claims import PaperClaim, Reproduction
from antiphon.papers.hierarchical import (
    HEIGHT,
    TABLE_3,
    MeasuredTrees,
    acks_to_root,
    acks_to_root_as_printed,
    backlog_peak,
    best_trigger,
    circle_hops,
    claims,
    count,
    group_train_hops,
    measure,
    message_rounds,
    messages_processed,
    reproduction_of,
    total_hops,
    train_to_root_hops,
)
from antiphon.sim.lan import ROUND_PROTOCOLS, run_round
from antiphon.sim.trees import near_complete
from support.broken_claims import HIERARCHICAL, the_claim

OTHER = [
    (1, 1, 1),
    (1, 6, 1),
    (2, 1, 1),
    (7, 1, 5),
    (2, 2, 1),
    (2, 3, 2),
    (2, 7, 1),
    (3, 3, 2),
    (5, 3, 4),
    (6, 2, 6),
    (2, 6, 2),
]


@pytest.mark.parametrize(("b", "p", "z"), [(b, HEIGHT, z) for b, z in TABLE_3] + OTHER)
def test_hops_by_formula_and_by_counting(b: int, p: int, z: int) -> None:
    tree = near_complete(b, p, z)
    totals = total_hops(b, p, z)
    assert acks_to_root(b, p, z) == sum(tree.depths)
    assert circle_hops(b, p, z) == sum(tree.distance(u, v) for u, v in enumerate(tree.circle_next))
    for name in ROUND_PROTOCOLS:
        counted_by_objects = name != "full-distribution" or len(tree) < 300
        engine = "objects" if counted_by_objects else "kernel"
        assert run_round(tree, name, engine).traffic.hops == totals[name], name


@pytest.mark.parametrize(("b", "p", "z"), [(2, 5, 1), (3, 4, 3), (3, 4, 1), (4, 3, 2), *OTHER])
def test_rounds_and_messages_processed_by_formula_and_by_counting(b: int, p: int, z: int) -> None:
    tree = near_complete(b, p, z)
    for name in ROUND_PROTOCOLS:
        counts = count(tree, name)
        assert counts.processed == messages_processed(b, p, z)[name], name
        assert counts.rounds == message_rounds(b, p, z)[name], name
    assert count(tree, "tree-train").chain_hops == train_to_root_hops(b, p, z)


def test_table_1_as_printed_is_the_case_of_z_equal_to_b() -> None:
    b, p = 4, 5
    assert message_rounds(b, p, b)["tree-train"] == b * p + 2
    assert train_to_root_hops(b, p, b) == p * (2 * (b - 1) + 1)
    assert messages_processed(b, p, b)["tree-coordinator"] == Counter({b + 4: 1, b + 3: 340, 3: 1024})
    assert messages_processed(b, p, 1)["tree-coordinator"] == Counter({b + 4: 1, b + 3: 84, 4: 256, 3: 256})


def test_the_printed_f_a_is_wrong_and_the_others_are_right() -> None:
    assert acks_to_root(4, 5, 4) == 6372
    assert float(acks_to_root_as_printed(4, 5, 4)) == pytest.approx(11833.33, abs=0.01)
    assert circle_hops(4, 5, 4) == 3604
    assert group_train_hops(4, 5, 4) == 2387


def test_the_trigger_is_bounded_by_the_minimum() -> None:
    g, rf = 100, Fraction(20)
    for alpha in (Fraction(1), Fraction(1, 2), Fraction(1, 4)):
        assert backlog_peak(Fraction(80), rf, alpha) == 100
        assert backlog_peak(Fraction(81), rf, alpha) == 101
        assert best_trigger(g, rf, alpha) == 80
    assert float(backlog_peak(Fraction(40), Fraction(40), Fraction(1, 2))) == pytest.approx(120)
    assert best_trigger(g, Fraction(40), Fraction(1, 2)) == 0


@pytest.fixture(scope="module")
def measured() -> MeasuredTrees:
    pytest.importorskip("numba")
    steps: list[float] = []
    found = measure(quick=True, progress=lambda done, total: steps.append(done / total))
    assert steps == sorted(steps)
    assert steps[-1] == 1
    return found


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, measured: MeasuredTrees) -> tuple[Reproduction, Path]:
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("hierarchical")
    return reproduction_of(measured, out), out


@pytest.fixture(scope="module")
def sound(measured: MeasuredTrees) -> list[PaperClaim]:
    return claims(measured)


@pytest.mark.parametrize("words", HIERARCHICAL)
def test_a_claim_comes_out_otherwise_when_the_protocol_is_broken(
    words: str, measured: MeasuredTrees, sound: list[PaperClaim]
) -> None:
    assert the_claim(sound, words).agrees != the_claim(HIERARCHICAL[words](measured), words).agrees


def claim(reproduction: Reproduction, beginning: str) -> PaperClaim:
    return the_claim(reproduction.claims, beginning)


def test_every_known_disagreement_is_stated(quick: tuple[Reproduction, Path]) -> None:
    reproduction, _ = quick
    differing = {claim.claim for claim in reproduction.claims if not claim.agrees}
    for beginning in (
        "F_a,",
        "S_CoordP improves the RTT over CoordP 70 ",
        "S_CoordP improves the RTT over CoordP 2100 ",
        "S_Train improves the RTT over Train 35 ",
        "S_Train improves the RTT over Train 500 ",
        "The structured protocols need fewer messages",
        "The RTTs of random trees",
        "The probabilities of the levels",
        "The optimal trigger",
    ):
        assert any(text.startswith(beginning) for text in differing), beginning
    assert all(claim.why and claim.where for claim in reproduction.claims)


def test_the_qualitative_claims_hold(quick: tuple[Reproduction, Path]) -> None:
    reproduction, _ = quick
    for beginning in (
        "Group sizes",
        "F_d,",
        "F_g,",
        "FullDist has the largest queue",
        "CoordP and FullDist have almost identical RTT",
        "Train has the longest RTT",
        "S_Train has the longer RTT",
        "The structured protocols scale",
    ):
        assert claim(reproduction, beginning).agrees, beginning


def test_speed_ups_are_those_of_the_model(quick: tuple[Reproduction, Path]) -> None:
    reproduction, _ = quick
    assert claim(reproduction, "S_CoordP improves the RTT over CoordP 70 ").ours == pytest.approx(32.6, abs=0.1)
    assert claim(reproduction, "S_Train improves the RTT over Train 500 ").ours == pytest.approx(838.9, abs=0.1)


def test_tables_agree_with_counting_and_figures_are_drawn(quick: tuple[Reproduction, Path]) -> None:
    reproduction, out = quick
    tables = {table.name: table for table in reproduction.tables}
    assert [row[-1] for row in tables["table-4"].rows] == ["yes"] * 9
    assert [row[-1] for row in tables["table-1"].rows] == ["yes"] * 10
    assert {path.stem for path in reproduction.figures} == {
        "figures-1-5",
        *(f"figure-{k}" for k in range(6, 11)),
        "beyond-the-paper",
    }
    assert all(path.parent == out and path.stat().st_size > 5_000 for path in reproduction.figures)


def test_the_command_prints_the_contracts_object(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    quick: tuple[Reproduction, Path],
    tmp_path: Path,
) -> None:
    reproduction, _ = quick
    monkeypatch.setattr("antiphon.papers.hierarchical.reproduce", lambda out, quick, progress: reproduction)
    assert main(["reproduce", "hierarchical-stability", "--json", "--out", str(tmp_path / "new")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["paper"] == "hierarchical-stability"
    assert set(printed["claims"][0]) == {"claim", "where", "published", "ours", "agrees", "why"}
    assert json.loads((tmp_path / "new" / "claims.json").read_text()) == printed
    assert (tmp_path / "new" / "table-4.csv").read_text().splitlines()[1].startswith("47,2,1,270,2162,352,138,153")
    assert main(["reproduce", "hierarchical-stability"]) == 0
    shown = capsys.readouterr().out
    assert "Table 4" in shown
    assert "! F_a" in shown


def test_an_unknown_paper_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "hierarchical"]) == 2
    assert "hierarchical-stability" in capsys.readouterr().err
