"""Against Optuna's timeout on the same slots: no trial is cut off, and the best one is as good."""

import pytest

pytest.importorskip("optuna")

from tests.support.sweep_race import race_with_promise, race_with_timeout

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 11])
def test_best_trial_is_as_good_as_with_a_timeout(seed: int) -> None:
    ours, theirs = race_with_promise(seed), race_with_timeout(seed)
    assert ours.best >= theirs.best
    assert (ours.cut_off, theirs.cut_off) == (0, 4)
