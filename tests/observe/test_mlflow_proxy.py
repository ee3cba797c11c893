"""With a proxy in the environment, an MLflow that does not answer may be a proxy that does not."""

from collections.abc import Callable

import pytest

from laxity.worker.mlflow_tracking import proxy_text, require_answer
from laxity_profiler.registry.mlflow_errors import MlflowAwayError, check_answers

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:9")


@pytest.mark.parametrize("check", [check_answers, require_answer])
def test_an_mlflow_that_does_not_answer_is_told_with_the_proxy_that_was_asked(
    check: Callable[[str], None],
) -> None:
    with pytest.raises((MlflowAwayError, ConnectionError)) as refused:
        check(NOBODY)

    message = str(refused.value)
    assert "through the proxy 127.0.0.1:9 (NO_PROXY=127.0.0.1 asks it directly)" in message
    assert "secret" not in message


def test_an_address_that_is_asked_directly_is_told_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    assert not proxy_text(NOBODY)
    assert not proxy_text("https://mlflow.example")
