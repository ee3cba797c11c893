"""Count the tests of JUnit reports and name what was skipped: `python -m tests.support.skipped_tests`.

With `--but`, exits 1 where a test was skipped for a reason that has none of the given texts in it.
"""

import argparse
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def count(files: Sequence[Path]) -> tuple[str, Counter[str]]:
    """One line with the numbers, and how many tests each reason skipped."""
    roots = [ET.parse(file).getroot() for file in files]  # noqa: S314 - pytest has just written them
    suites = [suite for root in roots for suite in root.iter("testsuite")]
    ran, failed = (
        sum(int(suite.get(name, 0)) for suite in suites for name in names)
        for names in (("tests",), ("failures", "errors"))
    )
    left_out = [element for root in roots for element in root.iter("skipped")]
    expected = sum(element.get("type") == "pytest.xfail" for element in left_out)
    reasons = Counter(
        str(element.get("message")) for element in left_out if element.get("type") != "pytest.xfail"
    )
    passed = ran - failed - len(left_out)
    line = f"{passed} passed, {failed} failed, {expected} failed as expected"
    return f"{line}, {reasons.total()} skipped", reasons


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--but", nargs="+", metavar="TEXT", help="reasons that may skip a test")
    options = parser.parse_args(arguments)
    line, reasons = count(options.files)
    sys.stdout.write(f"{line}\n")
    refused = False
    for reason, number in reasons.most_common():
        allowed = options.but is None or any(text in reason for text in options.but)
        refused |= not allowed
        verdict = "skipped" if allowed else "must not be skipped"
        sys.stdout.write(f"{verdict}: {number} ({reason})\n")
    return int(refused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
