"""No request makes the service fail: what OpenAPI allows, and what a grammar makes of it."""

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import pytest

from tests.support.attacked import Attacked, attacked
from tests.support.processes import run_command
from tests.support.request_grammar import Grammar
from tests.support.services import manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOG = logging.getLogger(__name__)
MOST_MEGABYTES = 400


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("fuzzed") / "home") as running:
        yield running


def fuzzed(service: Attacked, number: int, *, seed: int) -> Mapping[int, int]:
    """So many requests of the grammar; how many answers there were of each status."""
    statuses: Counter[int] = Counter()
    grammar = Grammar(seed)
    failed: list[tuple[str, str, bytes | None, bytes]] = []
    slowest_s = 0.0
    for count, (method, path, body) in enumerate(grammar.requests(number)):
        status, answer, seconds = service.ask(method, path, body)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            failed.append((method, path, body, answer))
        statuses[status] += 1
        slowest_s = max(slowest_s, seconds)
        if count % 100 == 0:
            jobs = json.loads(service.ask("GET", "/v1/jobs")[1])["jobs"]
            grammar.uids = ["u", *(view["uid"] for view in jobs)]
    LOG.info("%s, slowest %.2f s, %.0f MB", dict(statuses), slowest_s, service.megabytes())
    assert failed == []
    assert service.megabytes() < MOST_MEGABYTES
    return statuses


def still_decides(service: Attacked) -> bool:
    """Whether a good Job gets its verdict after all this."""
    good = manifest("good", deadline="1h", key=f"good-{time.monotonic()}", model="fresh")
    good["metadata"]["name"] = f"good-{time.monotonic_ns()}"
    name = good["metadata"]["name"]
    assert service.ask("POST", "/v1/jobs", json.dumps(good).encode())[0] == 201
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        view = json.loads(service.ask("GET", f"/v1/jobs/default/{name}?wait_s=1")[1])
        if view["verdict"] != "none":
            return True
    return False


def test_no_request_of_a_grammar_makes_the_service_fail(service: Attacked) -> None:
    statuses = fuzzed(service, 1_500, seed=7)
    assert {200, 201, 404, 405, 409, 422} <= statuses.keys()
    assert still_decides(service)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_twenty_thousand_requests_of_a_grammar_make_no_service_fail(service: Attacked) -> None:
    fuzzed(service, 20_000, seed=99)
    assert still_decides(service)


def conforming(service: Attacked, examples: int, *, part: int = 0, parts: int = 1) -> int:
    """Call the operations with so many examples of their schemas; how many calls that were."""
    service.ask("POST", "/v1/jobs", json.dumps(manifest("known")).encode())
    address = f"http://{service.host}:{service.port}"
    numbers = map(str, (examples, part, parts))
    done = run_command(sys.executable, "-m", "tests.support.programs.openapi_calls", address, service.token, *numbers)  # fmt: skip
    LOG.info("%s%.0f MB", done.stderr, service.megabytes())
    assert done.returncode == 0, done.stderr
    assert service.megabytes() < MOST_MEGABYTES
    return int(done.stdout)


def test_every_answer_has_a_code_that_the_openapi_document_names(service: Attacked) -> None:
    assert conforming(service, 50) > 500
    assert still_decides(service)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(6))
def test_thousands_of_calls_of_the_openapi_document_have_its_codes(
    service: Attacked, part: int
) -> None:
    """Some 20,000 in all; an operation without parameters has few examples, however many it may."""
    assert conforming(service, 2_000, part=part, parts=6) > 2_000
    assert still_decides(service)


def test_every_code_is_named_where_no_example_can_reach_it(service: Attacked) -> None:
    paths = json.loads(service.ask("GET", "/openapi.json")[1])["paths"]
    codes = {code for methods in paths.values() for call in methods.values()
             for code in call["responses"]}  # fmt: skip
    wanted = {
        HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }  # fmt: skip
    assert {str(int(code)) for code in wanted} <= codes
