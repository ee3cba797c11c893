"""Tokens open namespaces: others' jobs are not there, and without one nothing is told."""

from pathlib import Path

import pytest

from laxity_scheduler.http.tokens import (
    FULL_ACCESS,
    Caller,
    Tokens,
    TokensError,
    read_tokens,
    worker_token,
)
from laxity_scheduler.live import JobError
from laxity_scheduler.process.instance_dir import InstanceDir
from laxity_scheduler.process.serve import load_tokens
from laxity_scheduler.service.settings import Settings, SettingsError
from tests.support.builders import SECRET, bearer
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, manifest, staged, wait_until

ALICE, OPERATOR = "a" * 20, "o" * 20


def tokens(path: Path) -> Tokens:
    path.write_text(f"# who may what\n{ALICE} alice\n{OPERATOR} *\n")
    return Tokens(read_tokens(path), SECRET)


def test_without_a_token_only_health_is_told(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2), tokens=tokens(tmp_path / "tokens")) as stage:
        closed = ["/v1/jobs", "/v1/cluster", "/v1/decisions", "/metrics", "/v1/jobs/alice/a"]
        answers = [stage.http.get(path) for path in closed]
        wrong = stage.http.get("/v1/jobs", headers=bearer("x" * 20))
        open_to_all = [stage.http.get(path).status_code for path in ("/healthz", "/readyz")]
    assert [answer.status_code for answer in [*answers, wrong]] == [401] * 6
    assert answers[0].json()["error"]["code"] == "unauthorized"
    assert "this service wants a token: set LAXITY_TOKEN" in answers[0].json()["error"]["message"]
    assert "does not know the token that was sent" in wrong.json()["error"]["message"]
    assert open_to_all == [200, 200]


def test_a_token_opens_its_own_namespace_and_hides_all_others(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2), tokens=tokens(tmp_path / "tokens")) as stage:
        theirs = stage.http.post(
            "/v1/jobs", json=manifest("b", namespace="bob"), headers=bearer(OPERATOR)
        )
        mine = stage.http.post(
            "/v1/jobs", json=manifest("a", namespace="alice"), headers=bearer(ALICE)
        )
        forbidden = stage.http.post(
            "/v1/jobs", json=manifest("c", namespace="bob"), headers=bearer(ALICE)
        )
        listed = stage.http.get("/v1/jobs", headers=bearer(ALICE)).json()["jobs"]
        hidden = [
            stage.http.get("/v1/jobs/bob/b", headers=bearer(ALICE)),
            stage.http.delete("/v1/jobs/bob/b", headers=bearer(ALICE)),
            stage.http.get("/v1/decisions", params={"job": "bob/b"}, headers=bearer(ALICE)),
        ]
        release = stage.http.post("/v1/release", json={}, headers=bearer(ALICE))
        all_of_them = stage.http.get("/v1/jobs", headers=bearer(OPERATOR)).json()["jobs"]
    assert (theirs.status_code, mine.status_code, forbidden.status_code) == (201, 201, 403)
    assert [view["id"] for view in listed] == ["alice/a"]
    assert [answer.status_code for answer in hidden] == [404] * 3
    assert release.status_code == 403
    assert {view["id"] for view in all_of_them} == {"alice/a", "bob/b"}


def test_a_tenant_is_named_no_foreign_job_and_the_operator_is(tmp_path: Path) -> None:
    """In views, chains, what-ifs and decisions, of a job that waits for others."""
    taken = manifest("secret", namespace="bob", deadline="2h", epochs=1000)
    wanted = manifest("mine", namespace="alice")
    with staged(tmp_path, MemoryWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        alice, operator = bearer(ALICE), bearer(OPERATOR)
        stage.http.post("/v1/jobs", json=taken, headers=operator)
        wait_until(lambda: is_running(stage, "bob/secret"), "bob's job to run")
        stage.http.post("/v1/jobs", json=wanted, headers=alice)
        wait_until(lambda: bool(held_by(stage, alice)), "alice's job to be judged")
        told, whole = (
            [
                stage.http.get("/v1/jobs", headers=who).text if who is alice else "",
                stage.http.get("/v1/jobs/alice/mine", headers=who).text,
                stage.http.get("/v1/jobs/alice/mine/explain", headers=who).text,
                stage.http.get("/v1/decisions", params={"job": "alice/mine"}, headers=who).text,
                stage.http.post(
                    "/v1/whatif", json=manifest("asked", namespace="alice"), headers=who
                ).text,
            ]
            for who in (alice, operator)
        )
        pinned = stage.http.post("/v1/jobs/alice/mine/release", headers=alice)
    assert not any("secret" in answer for answer in told), told
    assert "a job of another namespace" in told[2]
    assert "bob/secret" in whole[2]
    assert pinned.status_code == 403


def test_a_tenant_is_not_told_on_whose_job_cycles_fail(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        stage.world.broken = JobError("bob/secret", "nobody can read it")
        stage.world.wake()
        wait_until(lambda: bool(stage.service.failure_streak.alarm), "three failed cycles")
        mine, whole = (
            stage.http.get("/readyz", headers=who).text
            + stage.http.get("/v1/cluster", headers=who).text
            for who in (bearer(ALICE), bearer(OPERATOR))
        )
    assert "secret" not in mine
    assert mine.count("cycles fail; a token for all namespaces shows why") == 2
    assert whole.count("bob/secret") >= 2


def is_running(stage: Stage, job_id: str) -> bool:
    return bool(stage.http.get(f"/v1/jobs/{job_id}", headers=bearer(OPERATOR)).json()["workers"])


def held_by(stage: Stage, who: dict[str, str]) -> list[str]:
    answer = stage.http.get("/v1/jobs/alice/mine/explain", headers=who).json()
    return list(answer["held_by"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("short ns\n", "line 1: a token has 16", id="a short token"),
        pytest.param(f"\n{ALICE}\n", "line 2: no namespace", id="no namespace"),
        pytest.param("# nothing\n", "holds no token", id="an empty file"),
    ],
)
def test_a_file_of_tokens_that_makes_no_sense_is_named_by_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(TokensError, match=problem):
        read_tokens(tmp_path / "tokens")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        pytest.param("127.0.0.1", True, id="this machine"),
        pytest.param("::1", True, id="this machine by IPv6"),
        pytest.param("localhost", True, id="by name"),
        pytest.param("0.0.0.0", False, id="every address"),  # noqa: S104 - only a name here
        pytest.param("10.0.0.7", False, id="a network address"),
        pytest.param("example.org", False, id="any other name"),
    ],
)
def test_it_is_known_whether_only_this_machine_can_reach_the_service(
    host: str, loopback: bool
) -> None:
    assert Settings(home=Path("/nowhere"), host=host).is_loopback is loopback


def test_a_workers_token_opens_the_signal_call_of_its_job_and_nothing_else(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2), tokens=tokens(tmp_path / "tokens")) as stage:
        body = manifest("a", namespace="alice")
        uid = stage.http.post("/v1/jobs", json=body, headers=bearer(ALICE)).json()["uid"]
        worker = bearer(worker_token(SECRET, uid))
        signal = stage.http.post("/v1/jobs/alice/a/signal", json={"uid": uid}, headers=worker)
        others = [
            stage.http.get("/v1/jobs", headers=worker),
            stage.http.get("/v1/jobs/alice/a", headers=worker),
            stage.http.delete("/v1/jobs/alice/a", headers=worker),
            stage.http.post("/v1/jobs", json=body, headers=worker),
            stage.http.get("/metrics", headers=worker),
        ]
        unnamed = stage.http.post("/v1/jobs/alice/a/signal", json={}, headers=worker)
    assert signal.status_code == 200
    assert [answer.status_code for answer in others] == [403] * 5
    assert unnamed.status_code == 422
    assert unnamed.json()["error"]["field"] == "uid"


def test_a_worker_cannot_report_for_the_job_of_another_tenant(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2), tokens=tokens(tmp_path / "tokens")) as stage:
        theirs, mine = [
            stage.http.post("/v1/jobs", json=manifest(name), headers=bearer(OPERATOR)).json()
            for name in ("victim", "forger")
        ]
        failed = {"seq": 1, "kind": "failed", "at": theirs["submitted_at"], "error": "forged"}
        worker = bearer(worker_token(SECRET, mine["uid"]))
        forged = [
            stage.http.post(
                f"/v1/jobs/default/{name}/signal",
                json={"uid": uid, "reports": [failed]},
                headers=headers,
            )
            for name, uid, headers in (
                ("victim", theirs["uid"], worker),
                ("victim", mine["uid"], worker),
                ("nobody", mine["uid"], worker),
                ("victim", theirs["uid"], bearer(worker_token("another secret", theirs["uid"]))),
            )
        ]
        after = stage.http.get("/v1/jobs/default/victim", headers=bearer(OPERATOR)).json()
    assert [answer.status_code for answer in forged] == [403, 403, 403, 401]
    assert theirs["uid"] not in forged[1].text
    assert after["error"] == ""


def test_the_operators_token_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAXITY_TOKEN", OPERATOR)
    monkeypatch.delenv("LAXITY_WORKER_SECRET", raising=False)
    keys = load_tokens(InstanceDir(tmp_path), None)
    assert keys.own == OPERATOR
    assert keys.tokens.caller_of(f"Bearer {OPERATOR}") == FULL_ACCESS
    assert keys.tokens.caller_of(f"Bearer {keys.of_worker('u1')}") == Caller(frozenset(), "u1")
    assert not (tmp_path / "tokens").exists()
    assert (tmp_path / "worker-secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("with_file", [False, True], ids=["token given", "file given"])
def test_a_worker_that_was_given_its_token_by_one_replica_is_known_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_file: bool
) -> None:
    monkeypatch.setenv("LAXITY_TOKEN", OPERATOR)
    monkeypatch.setenv("LAXITY_WORKER_SECRET", SECRET)
    file = tmp_path / "tokens"
    tokens(file)
    one, other = [
        load_tokens(InstanceDir(home), file if with_file else None)
        for home in (tmp_path / "one", tmp_path / "two")
    ]
    assert other.tokens.caller_of(f"Bearer {one.of_worker('u1')}") == Caller(frozenset(), "u1")
    assert not list(tmp_path.glob("*/worker-secret"))


@pytest.mark.parametrize("name", ["LAXITY_TOKEN", "LAXITY_WORKER_SECRET"])
def test_a_token_or_secret_that_can_be_guessed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "short")
    with pytest.raises(TokensError, match=f"{name} has 5 characters; 16 are the least"):
        load_tokens(InstanceDir(tmp_path), None)


def test_a_token_is_made_once_and_kept_in_a_file_of_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAXITY_TOKEN", raising=False)
    first, again = [load_tokens(InstanceDir(tmp_path), None) for _ in range(2)]
    assert len(first.own) >= 32
    assert again.own == first.own
    assert first.tokens.caller_of(f"Bearer {first.own}") == FULL_ACCESS
    assert first.tokens.caller_of("") is None
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600


def test_a_file_of_tokens_that_is_not_there_is_an_error_not_an_open_door(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no file of tokens"):
        load_tokens(InstanceDir(tmp_path), tmp_path / "missing")
