"""What a worker said cannot act on the terminal or the page that shows it."""

from typing import Any

import pytest

from laxity.api.job_view import job_view
from laxity.api.status_text import TrainingFailed, verdict_markdown
from laxity.safe_text import markdown, printable
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job

TITLE, CLEAR, LINK = "\x1b]0;owned\x07", "\x1b[2J", "\x1b]8;;https://evil.example\x1b\\"
HOSTILE = f"a{TITLE}b{CLEAR}c{LINK}d\x9b1me\u202ef\rg\ud800h"
SHOWN = "abcd1mefgh"


def test_escapes_are_dropped_whole_and_lines_and_tabs_stay() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("one\n\ttwo \u00e9 \x1b[31mred\x1b[0m") == "one\n\ttwo \u00e9 red"
    assert printable("cut off \x1b]0;for ever") == "cut off ]0;for ever"


@pytest.mark.parametrize(
    ("path", "command"),
    [
        pytest.param("jobs/default/train", ("show", "train"), id="show"),
        pytest.param("jobs", ("ls",), id="ls"),
        pytest.param("jobs", ("top",), id="top"),
        pytest.param("jobs/default/train/explain", ("explain", "train"), id="explain"),
        pytest.param("decisions", ("decisions",), id="decisions"),
    ],
)
def test_no_command_prints_escapes_that_a_job_holds(
    path: str, command: tuple[str, ...], answering: Service, laxity: CommandLine
) -> None:
    view = job(error=HOSTILE, reason=HOSTILE)
    row = {"at": 1.0, "cycle": 1, "job": "default/train", "decision": "wait", "reason": HOSTILE}
    answers: dict[str, Any] = {
        "jobs/default/train": view,
        "jobs": {"jobs": [view]},
        "jobs/default/train/explain": {"job": view, "verdict": view, "chain": [row]},
        "decisions": {"decisions": [row]},
        "cluster": {"policy": HOSTILE},
    }
    for known, answer in answers.items():
        answering.answers[f"GET /v1/{known}"] = (200, answer)

    assert laxity(*command) == 0
    out = laxity.read()
    assert "cd1mefgh" in out
    assert not set("\x1b\x07\x9b\r\u202e\ud800") & set(out)


def test_json_has_the_text_as_the_service_said_it(answering: Service, laxity: CommandLine) -> None:
    answering.answers["GET /v1/jobs/default/train"] = (200, job(error=CLEAR))

    assert laxity("show", "train", "--json") == 0
    assert r'"error": "\u001b[2J"' in laxity.read()


def test_an_error_of_the_service_prints_no_escapes(answering: Service, laxity: CommandLine) -> None:
    said = {"error": {"code": "unknown", "message": HOSTILE}}
    answering.answers["GET /v1/jobs/default/train"] = (404, said)

    assert laxity("show", "train") == 4
    assert SHOWN in laxity.read_errors()


def test_a_flow_fails_with_words_that_a_terminal_cannot_obey() -> None:
    failed = str(TrainingFailed(job_view(job(state="failed", error=HOSTILE))))

    assert SHOWN in failed
    assert "\x1b" not in failed


def test_a_page_shows_the_error_of_a_worker_and_no_markup_of_it() -> None:
    said = "![x](http://e/x.png) <img src=x> **b** `c` a|b\n# d [l](javascript:x) &lt;"

    assert markdown(said) == (
        r"!\[x\](http://e/x.png) &lt;img src=x&gt; \*\*b\*\* \`c\` a\|b \# d"
        r" \[l\](javascript:x) &amp;lt;"
    )
    assert f"| error | {markdown(said)} |" in verdict_markdown(job_view(job(error=said)))
    assert markdown(said) in verdict_markdown(job_view(job(reason=said)))


def test_a_result_is_shown_in_its_own_letters_without_escapes(
    answering: Service, laxity: CommandLine
) -> None:
    view = job(state="finished", finished_at=1.0, result=f"gr\u00fcn{CLEAR}\x9b1m")
    answering.answers["GET /v1/jobs/default/train"] = (200, view)

    assert laxity("show", "train") == 0
    out = laxity.read()
    assert "gr\u00fcn" in out
    assert not {"\x1b", "\x9b"} & set(out)
