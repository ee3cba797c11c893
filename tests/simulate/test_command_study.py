"""`python -m studies` refuses what makes no row."""

from pathlib import Path

import pytest

from studies.__main__ import study
from tests.support.command_line import invoke


def studied(*words: str) -> tuple[int, str]:
    result = invoke(["study", *words], lambda app: app.command("study")(study))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param("qoss", "no study 'qoss' among these; did you mean qos?", id="no study"),
        pytest.param("qos --seeds 0", "--seeds is 0: there may be", id="no seed"),
        pytest.param("qos --processes 0", "--processes is 0: there may", id="no process"),
        pytest.param("qos --where trace=99", "has all these labels; there is part=", id="no row"),
    ],
)
def test_a_study_that_makes_no_row_is_refused(tmp_path: Path, words: str, says: str) -> None:
    code, text = studied(*words.split(), "--samples", "--out", str(tmp_path))
    assert (code, says in text) == (2, True), text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        pytest.param("none", "none, which is no folder; --samples takes", id="no folder"),
        pytest.param("", "has no trace that study ladder takes; --samples", id="empty folder"),
    ],
)
def test_a_study_without_traces_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, says: str
) -> None:
    monkeypatch.setenv("LAXITY_TRACES", str(tmp_path / folder))
    code, text = studied("ladder", "--out", str(tmp_path / "out"))
    assert (code, says in text) == (2, True), text
