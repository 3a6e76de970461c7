"""No claim is true by construction: each comes out otherwise under a broken rule, or under the rule that is claimed."""

from __future__ import annotations

import pytest

from support.broken_claims import BREAKS, the_claim

CLAIMS = [(paper, words) for paper, breaks in BREAKS.items() for words in breaks]


@pytest.mark.parametrize(("paper", "words"), CLAIMS)
def test_a_claim_comes_out_otherwise_when_the_protocol_is_broken(paper: str, words: str) -> None:
    sound, broken = BREAKS[paper][words]
    assert the_claim(sound(), words).agrees != the_claim(broken(), words).agrees
