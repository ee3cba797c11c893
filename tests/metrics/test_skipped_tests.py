"""CI says which tests were skipped and why, and fails where a package is missing."""

from pathlib import Path

import pytest

from tests.support.skipped_tests import main

REPORT = """<testsuites><testsuite tests="5" failures="1" errors="0" skipped="3">
<testcase name="a"/><testcase name="b"><failure/></testcase>
<testcase name="c"><skipped type="pytest.skip" message="no cluster: set it"/></testcase>
<testcase name="d"><skipped type="pytest.skip" message="PyTorch is not installed"/></testcase>
<testcase name="e"><skipped type="pytest.xfail" message="a known gap"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("but", "status", "told"),
    [
        ([], 0, "skipped: 1 (PyTorch is not installed)"),
        (["--but", "no cluster"], 1, "must not be skipped: 1 (PyTorch is not installed)"),
        (["--but", "no cluster", "PyTorch"], 0, "skipped: 1 (no cluster: set it)"),
    ],
)
def test_a_skip_is_named_and_fails_the_run_unless_its_reason_is_allowed(
    but: list[str], status: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(REPORT)

    assert main([str(report), *but]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 passed, 1 failed, 1 failed as expected, 2 skipped"
    assert told in lines[1:]
    assert len(lines) == 3
