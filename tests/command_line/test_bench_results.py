import pytest

from benchmarks.results import figure, show


def test_figures_stand_under_one_another_however_long_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show({"a": figure(1.0, "ms"), "a" * 40: figure(2.0, "ms")}, as_json=False)

    first, second = capsys.readouterr().out.splitlines()
    assert first.index("1.00") == second.index("2.00")
