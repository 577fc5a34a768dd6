"""Power cuts of a cluster find what is wrong; chaos/test_campaign.py has a share of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cluster.cuts import power_cuts
from cluster.lines import LINES


@pytest.mark.long
def test_disks_that_lie_about_syncs_are_found(tmp_path: Path) -> None:
    """Else the cuts would prove nothing."""
    found = (
        "lost that were promised|not what was told|ended with 1|was read where|was read as|be read to|went back|"
        "acknowledged for|cairn verify"
    )
    with pytest.raises(AssertionError, match=found):
        power_cuts(
            tmp_path, 1, Counter(), 5, shapes=["all brokers"] * 5, lines=[LINES["all-commit"]], lies_about=".jnl"
        )
