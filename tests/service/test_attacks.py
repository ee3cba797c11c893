"""A real service under attack: half-open connections, floods of refused Jobs, an end amid polls."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.api.client import Client, ServiceError
from tests.support.attacked import Attacked, attacked, laxity
from tests.support.services import manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LOG = logging.getLogger(__name__)
MOST_MEGABYTES = 400
HEADERS = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("attacked") / "home") as running:
        yield running


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEADERS, id="headers without an end"),
        pytest.param(BODY, id="a body without a token"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_thousand_half_open_connections_leave_the_service_answering(
    service: Attacked, sent: bytes
) -> None:
    with service.half_open(1000, sent):
        answers = [service.ask("GET", path) for path in ("/healthz", "/v1/jobs", "/v1/cluster")]
        held = service.connections()
    assert [status for status, _, _ in answers] == [200] * 3
    assert max(seconds for _, _, seconds in answers) < 1.0
    assert held < 300
    assert service.megabytes() < MOST_MEGABYTES


def test_a_body_with_a_token_that_stops_half_way_is_answered_and_let_go(service: Attacked) -> None:
    shown = f"Authorization: Bearer {service.token}\r\n".encode()
    slow = service.opened(BODY.replace(b"Content-Length", shown + b"Content-Length"))
    with slow:
        slow.settimeout(60)
        answer = slow.recv(65_536)
        rest = b"".join(iter(lambda: slow.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer + rest


def test_a_stranger_is_answered_before_he_has_sent_his_body(service: Attacked) -> None:
    with service.opened(BODY) as stranger:
        answer = stranger.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 401")


def test_a_body_far_beyond_the_limit_is_answered_in_words_while_it_is_sent(
    service: Attacked,
) -> None:
    status, answer, _ = service.ask("POST", "/v1/jobs", b"x" * 8 * 1024 * 1024)
    assert (status, json.loads(answer)["error"]["code"]) == (413, "too_long")


def test_headers_without_an_end_are_cut_off_by_their_size(service: Attacked) -> None:
    before = service.megabytes()
    with service.opened(HEADERS) as flood:
        flood.settimeout(30)
        more = (b"x" * 65_536 + b"\r\nX-More: ") * 1_000
        with pytest.raises(OSError):  # noqa: PT011 - however the system says that it is closed
            flood.sendall(more)
    assert service.megabytes() - before < 20


def refused(service: Attacked, number: int) -> tuple[float, float]:
    """Submit a large Job under a name that is taken, so often; megabytes in the middle and after."""
    taken = manifest("taken")
    taken["metadata"]["annotations"][names.DEADLINE] = "1h"
    service.ask("POST", "/v1/jobs", json.dumps(taken).encode())
    middle = 0.0
    for count in range(number):
        large = "[" + ",".join(["[]"] * 21_000) + f",{count}]"
        taken["metadata"]["annotations"][names.PARAMETERS] = f'{{"a":{large}}}'
        status, answer, _ = service.ask("POST", "/v1/jobs", json.dumps(taken).encode())
        assert status == 409, answer
        if count == number // 2:
            middle = service.megabytes()
    after = service.megabytes()
    LOG.info("%d refused: %.0f MB half way, %.0f MB after", number, middle, after)
    return middle, after


def test_refused_submissions_leave_no_memory_behind(service: Attacked) -> None:
    middle, after = refused(service, 400)
    assert after < MOST_MEGABYTES
    assert after - middle < 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_refused_submissions_leave_no_memory_behind(service: Attacked) -> None:
    middle, after = refused(service, 10_000)
    assert after < MOST_MEGABYTES
    assert after - middle < 10


def test_another_user_of_the_machine_runs_nothing_here(service: Attacked) -> None:
    body = json.dumps(manifest("theirs")).encode()
    status, answer, _ = service.ask("POST", "/v1/jobs", body, Authorization="")
    with pytest.raises(ServiceError, match="set LAXITY_TOKEN"):
        Client(f"http://127.0.0.1:{service.port}", "", patience_s=0).jobs()
    assert status == 401
    assert b"service.json" in answer


def test_a_foreign_page_releases_no_job_of_this_machine(service: Attacked) -> None:
    status, _, _ = service.ask("POST", "/v1/release", Origin="https://evil.example")
    assert status == 403


def test_the_owners_commands_find_the_token_by_the_home_alone(service: Attacked) -> None:
    assert json.loads(laxity(service.home, "ls", "--json", "--all")) is not None


def test_a_service_on_ipv6_loopback_gets_ready_and_answers(tmp_path: Path) -> None:
    with attacked(tmp_path / "home", host="::1") as running:
        status, _, _ = running.ask("GET", "/v1/jobs")
    assert status == 200


def test_who_waits_while_the_service_goes_down_is_told_so(tmp_path: Path) -> None:
    told: list[tuple[int, bytes, float]] = []
    too_wide = manifest("a", deadline="1h", widths="64")
    with attacked(tmp_path / "home") as running:
        client = Client(f"http://127.0.0.1:{running.port}", running.token)
        client.submit(too_wide)
        view = client.job("a")
        while view.verdict != "refused":
            view = client.job("a", wait_s=5.0, seen=view.revision)
        path = f"/v1/jobs/default/a?wait_s=25&seen={view.revision}"
        waiting = threading.Thread(target=lambda: told.append(running.ask("GET", path)))
        waiting.start()
        while not running.connections():
            assert waiting.is_alive(), told
        laxity(running.home, "down")
        waiting.join(30)
        log = (running.home / "service.log").read_text()
    ((status, answer, _),) = told
    assert (status, json.loads(answer)["error"]["code"]) == (503, "stopping")
    assert "Traceback" not in log
    assert "CancelledError" not in log


def odd_affinity(job: dict[str, Any]) -> None:
    terms = {"nodeSelectorTerms": [{"matchFields": [1]}, 7]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    job["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}


def odd_preference(job: dict[str, Any]) -> None:
    preferred = [{"weight": 1, "preference": {"matchFields": [1]}}]
    wanted = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    job["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": wanted}


def odd_gpus(job: dict[str, Any]) -> None:
    second = {"name": "second", "resources": {"limits": {"nvidia.com/gpu": "²"}}}
    job["spec"]["template"]["spec"]["containers"].append(second)


def odd_container(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"]["containers"].append(7)


def odd_environment(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [7, None, {"name": []}]


@pytest.mark.parametrize(
    "twist", [odd_affinity, odd_preference, odd_gpus, odd_container, odd_environment]
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/whatif"])
def test_a_manifest_with_fields_of_wrong_types_fails_no_call(
    service: Attacked, path: str, twist: Callable[[dict[str, Any]], None]
) -> None:
    job = manifest("odd")
    twist(job)
    status, answer, _ = service.ask("POST", path, json.dumps(job).encode())
    assert status in (200, 201, 422), answer


@pytest.mark.parametrize(
    "twist",
    [
        pytest.param({"kind": ["epoch"]}, id="a kind that is a list"),
        pytest.param({"kind": {}}, id="a kind that is an object"),
        pytest.param({"seq": 10**30}, id="a number beyond 64 bits"),
        pytest.param({"seq": 1e308}, id="a number that is none"),
        pytest.param({"epoch": [1]}, id="an epoch that is a list"),
        pytest.param({"metrics": {"loss": {}}}, id="a metric that is an object"),
        pytest.param({"result": 2**64}, id="a result beyond 64 bits"),
        pytest.param({"error": "\ud800"}, id="half a character"),
        pytest.param({"width": 2**70, "epoch_s": "1e400"}, id="a huge width"),
    ],
)
def test_a_report_of_odd_types_fails_no_call(service: Attacked, twist: dict[str, Any]) -> None:
    made = service.ask("POST", "/v1/jobs", json.dumps(manifest("reported", key="r")).encode())[1]
    line = {"seq": 1, "kind": "epoch", "at": time.time(), "epoch": 1, "epoch_s": 1.0, "width": 1}
    body = json.dumps({"uid": json.loads(made)["uid"], "reports": [line | twist]}).encode()
    status, answer, _ = service.ask("POST", "/v1/jobs/default/reported/signal", body)
    listed = service.ask("GET", "/v1/jobs")[0]
    assert status in (200, 422), answer
    assert listed == 200
