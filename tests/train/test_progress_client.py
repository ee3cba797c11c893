"""Progress that Lightning scripts post: only to who takes it, and only towards an end that is known."""

from types import SimpleNamespace

import pytest

from laxity.lightning import _ProgressPoster
from laxity.names import ENV_PROGRESS_TOKEN as TOKEN
from laxity.names import ENV_PROGRESS_URL as URL
from laxity.worker.progress.progress_client import OFF, takes_progress


@pytest.mark.parametrize(
    ("variables", "taken"),
    [
        pytest.param({URL: "http://there", TOKEN: "file"}, True, id="both"),
        pytest.param({URL: "http://there"}, False, id="no token"),
        pytest.param({URL: "http://there", TOKEN: "file", OFF: "TRUE"}, False, id="turned off"),
        pytest.param({URL: "http://there", TOKEN: "file", "RANK": "1"}, False, id="rank 1"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_progress_is_posted_where_somebody_takes_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, taken: bool
) -> None:
    for name in (URL, TOKEN, OFF, "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)

    assert takes_progress() == taken


def test_script_without_a_last_epoch_trains_on_and_posts_nothing() -> None:
    endless = SimpleNamespace(
        num_training_batches=8, max_epochs=-1, max_steps=-1, callback_metrics={}
    )

    _ProgressPoster().on_train_end(endless, None)
