import json
import socket
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.api.client import (
    Client,
    ServiceAwayError,
    ServiceError,
    service_address,
    with_idempotency_key,
)
from laxity.api.job_view import job_view
from laxity.api.transport import Request, Transport
from tests.support.http_service import Service, job


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def nobody() -> str:
    """A URL at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def manifest(**annotations: str) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": "train", "annotations": annotations}}


def test_a_job_is_read_with_names_and_types(answering: Service) -> None:
    answering.answers["GET /v1/jobs/default/train"] = (200, job())

    view = Client(answering.url).job("train")

    assert (view.id, view.service_class, view.verdict) == ("default/train", "hard", "promised")
    assert view.widths == (1, 2, 4)
    assert view.width_history == ((1_999_999_100.0, 2),)
    assert view.raw["revision"] == 7


def test_a_long_poll_says_what_was_seen_and_how_long_to_wait(answering: Service) -> None:
    answering.answers["GET /v1/jobs/team/train"] = (200, job())

    Client(answering.url).job("team/train", wait_s=5, seen=7)

    assert answering.asked[0].path == "/v1/jobs/team/train?wait_s=5&seen=7"


def test_a_view_from_another_version_of_the_service_is_still_read() -> None:
    view = job_view({"id": "default/a", "deadline_at": None, "colour": "blue"})

    assert (view.state, view.deadline_at, view.offers) == ("queued", None, ())


def test_an_error_of_the_service_keeps_code_message_and_field(answering: Service) -> None:
    error = {"code": "invalid", "message": "deadline is in the past", "field": "deadline"}
    answering.answers["POST /v1/jobs"] = (422, {"error": error})

    with pytest.raises(ServiceError, match=r"in the past \(field deadline\)") as caught:
        Client(answering.url).submit(manifest())

    assert (caught.value.code, caught.value.status) == ("invalid", 422)


def test_an_answer_that_is_no_json_is_shown_as_it_is(answering: Service) -> None:
    answering.answers["GET /v1/cluster"] = (500, "Internal Server Error")

    with pytest.raises(ServiceError, match=r"HTTP 500.*Internal Server Error"):
        Client(answering.url).cluster()


def test_an_absent_service_is_waited_for_with_growing_pauses_until_patience_ends() -> None:
    clock = Clock()
    transport = Transport(nobody(), patience_s=60, clock=clock, sleep=clock.sleep)

    with pytest.raises(ServiceAwayError, match="laxity up"):
        transport.send(Request("GET", "/v1/jobs"))

    assert 40 < clock.now <= 60
    assert max(clock.slept) <= 5
    assert clock.slept[5] > clock.slept[0]


def test_a_service_that_cannot_answer_now_says_why(answering: Service) -> None:
    error = {"code": "stopping", "message": "the service is being stopped"}
    answering.answers["GET /v1/cluster"] = (503, {"error": error})

    with pytest.raises(ServiceAwayError, match="cannot answer now: the service is being stopped"):
        Client(answering.url, patience_s=0).cluster()


def test_a_service_that_comes_back_is_not_noticed_by_the_caller(answering: Service) -> None:
    answers = iter([(503, {}), (0, None), (200, {"jobs": [job()]})])
    answering.answers["GET /v1/jobs"] = lambda _: next(answers)
    clock = Clock()

    found = Transport(answering.url, clock=clock, sleep=clock.sleep).send(
        Request("GET", "/v1/jobs")
    )

    assert [row["id"] for row in found["jobs"]] == ["default/train"]


def test_a_submission_is_asked_again_with_the_same_key_when_its_answer_is_lost(
    answering: Service,
) -> None:
    lost = iter([True, False])
    answering.answers["POST /v1/jobs"] = lambda _: (0, None) if next(lost) else (201, job())

    Client(answering.url).submit(manifest())

    keys = [row.body["metadata"]["annotations"][names.IDEMPOTENCY_KEY] for row in answering.asked]
    assert len(keys) == 2
    assert keys[0] == keys[1] != ""


def test_what_may_not_happen_twice_is_not_asked_again(answering: Service) -> None:
    answering.answers["POST /v1/jobs/default/train/accept"] = (0, None)

    with pytest.raises(ServiceAwayError):
        Client(answering.url).accept("train", 1)

    assert len(answering.asked) == 1


def test_a_key_of_the_user_is_kept() -> None:
    said = with_idempotency_key(manifest(**{names.IDEMPOTENCY_KEY: "commit-1"}))

    assert said["metadata"]["annotations"][names.IDEMPOTENCY_KEY] == "commit-1"


def test_names_with_odd_characters_cannot_leave_their_place_in_the_path(answering: Service) -> None:
    with pytest.raises(ServiceError):
        Client(answering.url).job("team/a?b#c d")

    assert answering.asked[0].path == "/v1/jobs/team/a%3Fb%23c%20d"


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param({}, ("http://127.0.0.1:9", "secret"), id="what the running service wrote"),
        pytest.param({"LAXITY_URL": "http://x"}, ("http://x", ""), id="no token for another one"),
        pytest.param(
            {"LAXITY_URL": "http://127.0.0.1:9"},
            ("http://127.0.0.1:9", "secret"),
            id="the same one",
        ),
        pytest.param(
            {"LAXITY_URL": "http://localhost:9/"},
            ("http://127.0.0.1:9", "secret"),
            id="the same one by another name, at the address that it wrote",
        ),
        pytest.param(
            {"LAXITY_URL": "http://127.0.0.1:10"}, ("http://127.0.0.1:10", ""), id="another port"
        ),
        pytest.param(
            {"LAXITY_URL": "http://x", "LAXITY_TOKEN": "t"}, ("http://x", "t"), id="the environment"
        ),
    ],
)
def test_the_service_is_found_by_environment_then_home(
    environ: dict[str, str],
    want: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = {"url": "http://127.0.0.1:9", "token": "secret"}
    (tmp_path / "service.json").write_text(json.dumps(written))
    for name in (names.ENV_URL, names.ENV_TOKEN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(names.ENV_HOME, str(tmp_path))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert service_address() == want


def test_the_token_is_sent_as_a_bearer(answering: Service) -> None:
    answering.answers["GET /v1/jobs"] = (200, {"jobs": []})

    Client(answering.url, "secret").jobs()

    assert answering.asked[0].token == "Bearer secret"


def test_an_address_that_is_none_is_said_to_be_none() -> None:
    with pytest.raises(ServiceError, match="http://HOST:PORT"):
        Client("localhost:8642").jobs()


def test_alive_asks_once_and_never_raises(answering: Service) -> None:
    answering.answers["GET /healthz"] = (200, {})

    assert Client(answering.url).alive()
    assert not Client(nobody()).alive()
