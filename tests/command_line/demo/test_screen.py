import io

from rich.console import Console

from examples.demo.display import Screen, job_news, jobs_summary
from laxity.api.client import JobView


def job(**changes: object) -> JobView:
    return JobView(id="default/train", epochs=10, **changes)  # type: ignore[arg-type]


def told(before: JobView | None, after: JobView) -> list[str]:
    return [words for words, _ in job_news(before, after)]


def test_a_verdict_is_told_with_its_code_and_reason() -> None:
    refused = job(verdict="refused", reason_code="too_late", reason="8m after the deadline")

    assert told(job(), refused) == ["refused [too_late]: 8m after the deadline"]


def test_a_start_a_growth_and_a_stop_are_told() -> None:
    assert told(job(), job(workers=1)) == ["starts on 1 worker after epoch 0"]
    assert told(job(workers=1), job(workers=2, reason="late")) == [
        "grows from 1 to 2 workers: late"
    ]
    assert told(job(workers=1), job(epochs_done=4, reason="for x")) == [
        "stopped after epoch 4, saved: for x"
    ]
    assert told(job(epochs_done=4), job(workers=1, epochs_done=4)) == [
        "resumes on 1 worker after epoch 4"
    ]


def test_the_end_is_told_with_how_it_stands_to_its_deadline() -> None:
    end = job(state="finished", finished_at=90.0, deadline_at=100.0)

    assert told(job(deadline_at=100.0, workers=1), end) == ["kept, 10s early"]


def test_an_epoch_alone_is_no_line() -> None:
    assert told(job(workers=1), job(workers=1, epochs_done=3, laxity_s=4.0)) == []


def test_a_log_gets_lines_and_no_table() -> None:
    out = io.StringIO()
    with Screen(Console(file=out, width=120)) as screen:
        screen.play("First")
        screen.show_change(None, job(workers=1))
        for _ in range(5):
            screen.look({"default/train": job(workers=1, epochs_done=2)})

    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "train 2/10 on 1" in lines[2]


def test_a_terminal_gets_a_table_that_is_drawn_over() -> None:
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=True)
    with Screen(console) as screen:
        screen.look({"default/train": job(workers=1, state="running", verdict="promised")})

    assert "STATE" in out.getvalue()
    assert "running, promised" in out.getvalue()


def test_a_summary_names_what_runs_and_what_waits() -> None:
    jobs = [job(workers=2, state="running", epochs_done=3), JobView("default/other")]

    assert jobs_summary(jobs) == "train 3/10 on 2   other waits"
