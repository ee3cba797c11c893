"""`make` says which tests were skipped and why; CI fails where a reason is not allowed."""

from pathlib import Path

import pytest

from tests.support.skipped_tests import main

REPORT = """<testsuites><testsuite tests="6" failures="1" errors="1" skipped="4">
<testcase classname="tests.x" name="a"/><testcase classname="tests.x" name="b"><failure/></testcase>
<testcase classname="tests.x" name="b"><error/></testcase>
<testcase classname="tests.x" name="c[1]"><skipped type="pytest.skip" message="no cluster: set it"/></testcase>
<testcase classname="tests.x" name="c[2]"><skipped type="pytest.skip" message="no cluster: set it"/></testcase>
<testcase classname="" name="tests.d"><skipped type="pytest.skip" message="collection skipped"
>PyTorch is not installed</skipped></testcase>
<testcase classname="tests.x" name="e"><skipped type="pytest.xfail" message="a known gap"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("but", "status", "told"),
    [
        ([], 0, "skipped: 1 (PyTorch is not installed)"),
        (["--but"], 1, "must not be skipped: 2 (no cluster: set it)"),
        (["--but", "no cluster"], 1, "must not be skipped: 1 (PyTorch is not installed)"),
        (["--but", "no cluster", "PyTorch"], 0, "skipped: 2 (no cluster: set it)"),
    ],
)
def test_a_skip_is_named_and_fails_the_run_unless_its_reason_is_allowed(
    but: list[str], status: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unit.xml").write_text(REPORT)

    assert main([str(tmp_path), *but]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 passed, 1 failed, 1 failed as expected, 3 skipped"
    assert told in lines[1:]
    assert [line for line in lines if line.startswith("  ")] == ["  tests.x::c (2)", "  tests.d"]
