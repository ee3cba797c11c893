"""Count the tests of JUnit reports; name those that were skipped, and those that failed once.

`python -m tests.support.skipped_tests FOLDER` reads all reports in the folder, and those in its
folder `again`: tests that failed and ran once more, whose second result counts. With `--but`, exits
1 where a test was skipped for a reason that has none of the given texts in it.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

AGAIN: Final = "again"  # the folder of second reports
_PARAMETERS: Final = re.compile(r"\[.*", re.DOTALL)


class Outcome(IntEnum):
    """Of one test; where a report has several parts of it, the greatest counts."""

    PASSED = 0
    SKIPPED = 1
    EXPECTED = 2
    FAILED = 3


class Result(NamedTuple):
    """Of one test, with the reason of a skip."""

    outcome: Outcome
    reason: str = ""


def read_results(files: Iterable[Path]) -> dict[str, Result]:
    """The result of each test; a teardown that failed is a part of its own."""
    results: dict[str, Result] = {}
    for file in files:
        for case in ET.parse(file).getroot().iter("testcase"):  # noqa: S314 - pytest has just written it
            name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
            results[name] = max(_read_result(case), results.get(name, Result(Outcome.PASSED)))
    return results


def _read_result(case: ET.Element) -> Result:
    if case.find("failure") is not None or case.find("error") is not None:
        return Result(Outcome.FAILED)
    skipped = case.find("skipped")
    if skipped is None:
        return Result(Outcome.PASSED)
    if skipped.get("type") == "pytest.xfail":
        return Result(Outcome.EXPECTED)
    message = str(skipped.get("message"))  # of a whole file pytest gives the reason in the text
    return Result(
        Outcome.SKIPPED, str(skipped.text) if message == "collection skipped" else message
    )


def count(results: Mapping[str, Result]) -> str:
    """One line with the numbers."""
    numbers = Counter(result.outcome for result in results.values())
    return (
        f"{numbers[Outcome.PASSED]} passed, {numbers[Outcome.FAILED]} failed, "
        f"{numbers[Outcome.EXPECTED]} failed as expected, {numbers[Outcome.SKIPPED]} skipped"
    )


def skips(results: Mapping[str, Result]) -> dict[str, Counter[str]]:
    """By reason: the functions that were skipped, and with how many parameters each."""
    functions: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, (outcome, reason) in results.items():
        if outcome is Outcome.SKIPPED:
            functions[reason][_PARAMETERS.sub("", name)] += 1
    return functions


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--but", nargs="*", metavar="TEXT", help="reasons that may skip a test")
    options = parser.parse_args(arguments)
    first = read_results(sorted(options.folder.glob("*.xml")))
    second = read_results(sorted((options.folder / AGAIN).glob("*.xml")))
    lines = [count(first | second)]
    for name, (outcome, _) in second.items():
        ended = "failed again" if outcome is Outcome.FAILED else "passed alone"
        lines.append(f"failed, then {ended}: {name}")
    refused = False
    for reason, functions in skips(first | second).items():
        allowed = options.but is None or any(text in reason for text in options.but)
        refused |= not allowed
        verdict = "skipped" if allowed else "must not be skipped"
        lines.append(f"{verdict}: {functions.total()} ({reason})")
        lines += [f"  {name}{f' ({number})' * (number > 1)}" for name, number in functions.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(refused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
