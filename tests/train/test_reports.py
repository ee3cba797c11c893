"""Reports are durable before they are sent, numbered without gaps, and sent until acknowledged."""

import json
from pathlib import Path

import pytest

from laxity.worker.reports import ReportChannel
from tests.support.training_service import Service


def test_numbers_go_on_over_starts(tmp_path: Path) -> None:
    ReportChannel(tmp_path).append("started", worker_pid=1)
    second = ReportChannel(tmp_path)

    second.append_all([{"kind": "epoch", "at": 1.0, "epoch": 7}, {"kind": "saved", "at": 2.0}])

    third = ReportChannel(tmp_path)
    assert [
        line["seq"] for kind in ("started", "epoch", "saved") for line in third.lines(kind)
    ] == [
        1,
        2,
        3,
    ]
    assert third.last_epoch == 7


def test_a_damaged_line_is_passed_over_and_a_torn_one_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ReportChannel(tmp_path).append("started", worker_pid=1)
    path = tmp_path / "reports.jsonl"
    path.write_text(path.read_text() + "\0\0\0\n" + '{"seq": 2, "ki')

    reports = ReportChannel(tmp_path)
    reports.append("parked", epoch=3)

    assert [line["seq"] for line in reports.lines("parked")] == [2]
    assert json.loads(path.read_text().splitlines()[-1])["kind"] == "parked"
    assert "line 2 is no report" in capsys.readouterr().err


def test_reports_that_the_file_does_not_take_are_sent_and_written_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = ReportChannel(tmp_path)
    path = tmp_path / "reports.jsonl"
    path.mkdir()  # a file that cannot be written
    reports.append("started", worker_pid=1)
    path.rmdir()

    reports.append("parked", epoch=1)

    written = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert written == ["started", "parked"]
    assert "cannot be kept" in capsys.readouterr().err


def test_a_new_service_without_memory_gets_everything_again(tmp_path: Path) -> None:
    first = Service()
    reports = ReportChannel(tmp_path, job="team/a", url=first.url)
    reports.append("started", worker_pid=1)
    assert reports.drain(at_most_s=30)
    port = first.port
    first.close()

    second = Service(port=port)
    reports.append("parked", epoch=0)

    second.until(lambda service: len(service.lines) == 2, "both reports")
    second.close()
    reports.close()
    assert [line["kind"] for line in second.lines] == ["started", "parked"]


def test_what_the_service_says_against_a_report_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service()
    service.turn_away("epoch", status=400, words="reports.0.epoch_s: \x1b[2Jtoo large")
    reports = ReportChannel(tmp_path, job="team/a", url=service.url)
    reports.append("epoch", epoch=1, epoch_s=1e300)

    assert not reports.drain(at_most_s=30)
    for generation in (2, 3):  # polls are answered meanwhile, and the report is sent again
        sent = service.turned_away
        service.order(workers=generation)
        service.until(lambda there, sent=sent: there.turned_away > sent, "another try")  # type: ignore[misc]

    reports.close()
    service.close()
    lines = capsys.readouterr().err.splitlines()  # also of one that another test has closed
    told = [line for line in lines if "the service answers" in line]
    assert told == [
        "laxity: the service answers 400 (reports.0.epoch_s: too large); training goes on"
    ]


def test_an_order_arrives_at_once(tmp_path: Path) -> None:
    service = Service()
    reports = ReportChannel(tmp_path, job="team/a", url=service.url)
    reports.first_answer(at_most_s=30)

    service.order(stop=True, workers=3, run_id="r1")

    assert reports.wait_until(lambda signal: signal.stop, at_most_s=30)
    assert (reports.signal.workers, reports.signal.run_id) == (3, "r1")
    reports.close()
    service.close()


def test_a_later_attempt_reports_for_itself_and_no_epoch_twice(tmp_path: Path) -> None:
    first = ReportChannel(tmp_path)
    first.append_all([{"kind": "epoch", "at": 1.0, "epoch": epoch} for epoch in (1, 2, 3)])
    with (tmp_path / "reports.jsonl").open("a") as file:
        file.write('{"seq": 4, "ki')  # torn by a kill: it is the first attempt's to cut off

    second = ReportChannel(tmp_path, file="reports-uid-2.jsonl")
    second.append("started", worker_pid=2)

    assert second.last_epoch == 3
    assert [line["seq"] for line in second.lines("started")] == [1]
    assert second.lines("epoch") == []
    assert (tmp_path / "reports.jsonl").read_text().endswith('"ki')
