"""What the page asks the service: signing in, its files, and the timeline."""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from laxity_scheduler.http import sessions
from laxity_scheduler.http.charts.timeline import TimelineSpan
from laxity_scheduler.http.charts.timeline_groups import group_counts, group_row
from laxity_scheduler.http.job_views import JobViews
from laxity_scheduler.http.page_files import FILES, FOLDER
from laxity_scheduler.http.sessions import Sessions
from laxity_scheduler.http.tokens import Tokens, read_tokens, worker_token
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.service_clock import CLOCK
from tests.support.builders import SECRET, TOKEN, Curve, bearer
from tests.support.memory_world import MemoryWorld
from tests.support.page_server import store_past_jobs
from tests.support.services import Stage, manifest, staged

ONE_TEAM = "token-of-team-a-only"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokens").write_text(f"{TOKEN} *\n{ONE_TEAM} team-a\n")
    tokens = Tokens(read_tokens(folder / "tokens"), SECRET)
    with staged(folder / "home", MemoryWorld(4), tokens=tokens) as opened:
        for namespace in ("team-a", "team-b"):
            answer = opened.http.post(
                "/v1/jobs", json=manifest_in(namespace), headers=bearer(TOKEN)
            )
            assert answer.status_code == 201, answer.text
        opened.http.headers.clear()
        yield opened


def manifest_in(namespace: str) -> dict[str, object]:
    return manifest(
        f"job-of-{namespace}", namespace=namespace, deadline="1h", epochs=100, widths="1"
    )


def signed_in(stage: Stage, word: str, scheme: str = "Bearer") -> TestClient:
    """A browser after it has signed in: it has a cookie and no token."""
    browser = TestClient(stage.http.app, "http://127.0.0.1", raise_server_exceptions=False)
    answer = browser.post("/v1/session", headers={"Authorization": f"{scheme} {word}"})
    assert answer.status_code == 200, answer.text
    return browser


def test_cookie_opens_reading_and_changes_nothing(stage: Stage) -> None:
    browser = signed_in(stage, TOKEN)

    assert browser.get("/v1/jobs").status_code == 200
    assert browser.post("/v1/release").status_code == 401
    assert browser.delete("/v1/jobs/team-a/job-of-team-a").status_code == 401
    assert browser.post("/v1/session/code").status_code == 401


ACTION = {"X-Laxity-Action": "confirmed"}


def test_confirmed_action_of_the_page_amends_and_cancels(tmp_path: Path) -> None:
    tokens = Tokens.for_token(TOKEN, SECRET)
    with staged(tmp_path, MemoryWorld(1), tokens=tokens) as opened:
        opened.http.headers["Authorization"] = f"Bearer {TOKEN}"
        opened.submit("nightly", deadline="1h", epochs=100, widths="1")
        browser, job = signed_in(opened, TOKEN), "/v1/jobs/default/nightly"
        amended = browser.post(f"{job}/amend", json={"deadline": "2h"}, headers=ACTION)
        cancelled = browser.delete(job, headers=ACTION)
        opened.until("default/nightly", lambda view: view["state"] == "cancelled", "cancelled")

    assert (amended.status_code, cancelled.status_code) == (200, 200)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        pytest.param("team-a/job-of-team-a/amend", {}, 401, id="the cookie alone"),
        pytest.param(
            "team-a/job-of-team-a/amend",
            ACTION | {"Origin": "https://evil.example"},
            403,
            id="a page of another site",
        ),
        pytest.param(
            "team-a/job-of-team-a/amend",
            ACTION | {"Sec-Fetch-Site": "same-site"},
            403,
            id="another port of this host",
        ),
        pytest.param("team-a/job-of-team-a/signal", ACTION, 401, id="a call for workers"),
        pytest.param("team-b/job-of-team-b/amend", ACTION, 404, id="a job of another namespace"),
    ],
)
def test_page_changes_nothing_else(
    stage: Stage, path: str, headers: dict[str, str], status: int
) -> None:
    browser = signed_in(stage, ONE_TEAM)

    answer = browser.post(f"/v1/jobs/{path}", json={"deadline": "2h"}, headers=headers)

    assert answer.status_code == status
    assert signed_in(stage, ONE_TEAM).post("/v1/release", headers=ACTION).status_code == 401
    assert signed_in(stage, ONE_TEAM).post("/v1/jobs", json={}, headers=ACTION).status_code == 401


def test_cookie_is_for_this_site_and_no_script(stage: Stage) -> None:
    answer = stage.http.post("/v1/session", headers=bearer(TOKEN))

    flags = {flag.strip().lower() for flag in answer.headers["Set-Cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert TOKEN not in answer.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("", id="nothing"),
        pytest.param("Bearer no-token-of-this-service", id="an unknown token"),
        pytest.param(f"Bearer {worker_token(SECRET, 'u1')}", id="a worker's token"),
        pytest.param("Code guessed", id="a guessed code"),
        pytest.param("Basic dXNlcjpwYXNz", id="another scheme"),
    ],
)
def test_strangers_get_no_cookie(stage: Stage, word: str) -> None:
    answer = stage.http.post("/v1/session", headers={"Authorization": word})
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (401, False)


@pytest.mark.parametrize("spoil", ["later", "other-token", "cut", "none"])
def test_forged_cookies_open_nothing(stage: Stage, spoil: str) -> None:
    kept = Sessions(Tokens.for_token(TOKEN, SECRET))
    name, cookie = kept.cookie_name, kept.cookie_for(f"Bearer {TOKEN}") or ""
    token_id, end, code = cookie.split(".")
    forged = {
        "later": f"{token_id}.{int(end) + 1}.{code}",
        "other-token": f"{'0' * 64}.{end}.{code}",
        "cut": cookie[:-1],
        "none": "",
    }[spoil]

    assert stage.http.get("/v1/jobs", headers={"Cookie": f"{name}={cookie}"}).status_code == 200
    assert stage.http.get("/v1/jobs", headers={"Cookie": f"{name}={forged}"}).status_code == 401


def test_cookie_ends_with_its_time_and_with_its_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Sessions(Tokens.for_token(TOKEN, SECRET))
    header = f"{kept.cookie_name}={kept.cookie_for(f'Bearer {TOKEN}')}"

    assert kept.caller_of(header) is not None
    assert Sessions(Tokens.for_token("another-token-now", SECRET)).caller_of(header) is None
    later = CLOCK.now() + sessions.SESSION_S + 1.0
    monkeypatch.setattr(CLOCK, "now", lambda: later)
    assert kept.caller_of(header) is None


def test_code_is_good_once_and_for_a_minute(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        stage.http.post("/v1/session/code", headers=bearer(TOKEN)).json()["code"] for _ in range(2)
    )

    assert signed_in(stage, first, "Code").get("/v1/cluster").status_code == 200
    sessions_call = {"Authorization": f"Code {first}"}
    assert stage.http.post("/v1/session", headers=sessions_call).status_code == 401
    later = CLOCK.now() + sessions.CODE_S + 1.0
    monkeypatch.setattr(CLOCK, "now", lambda: later)
    assert (
        stage.http.post("/v1/session", headers={"Authorization": f"Code {second}"}).status_code
        == 401
    )


def test_cookie_of_a_namespace_shows_its_jobs_only(stage: Stage) -> None:
    every, team = signed_in(stage, TOKEN), signed_in(stage, ONE_TEAM)

    assert len(every.get("/v1/timeline").json()["jobs"]["id"]) == 2
    answer = team.get("/v1/timeline")
    assert answer.json()["jobs"]["id"] == ["team-a/job-of-team-a"]
    assert "job-of-team-b" not in answer.text
    assert team.get("/v1/jobs/team-b/job-of-team-b/story").status_code == 404


def test_unchanged_timeline_is_not_sent_again(stage: Stage) -> None:
    browser = signed_in(stage, TOKEN)
    revision = browser.get("/v1/timeline?from=0").json()["revision"]

    again = browser.get("/v1/timeline", params={"from": 0, "seen": revision}).json()
    assert again.keys() == {"revision", "now"}


@pytest.mark.parametrize("span", ["from=NaN", "from=inf", "from=-1", "to=1e300"])
def test_impossible_spans_are_refused(stage: Stage, span: str) -> None:
    assert signed_in(stage, TOKEN).get(f"/v1/timeline?{span}").status_code == 422


def test_page_runs_only_what_the_service_sends(stage: Stage) -> None:
    page = stage.http.get("/")
    policy = page.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! type=\"module\" src)|style=|onclick=|https?://", page.text)
    assert {stage.http.get(f"/page/{name}").status_code for name in FILES} == {200}
    assert stage.http.get("/page/nothing.js", headers=bearer(TOKEN)).status_code == 404
    assert stage.http.get("/page/..%2Fapp.py").status_code in (401, 404)


@pytest.mark.parametrize(
    ("origins", "path", "ancestors"),
    [
        pytest.param("", "/?embed=1", "'none'", id="no origin is allowed"),
        pytest.param("https://g.example https://m.example:5000", "/", "'none'", id="not embedded"),
        pytest.param(
            "https://g.example https://m.example:5000",
            "/?embed=1",
            "https://g.example https://m.example:5000",
            id="embedded",
        ),
    ],
)
def test_frames_of_named_origins_only_show_the_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, origins: str, path: str, ancestors: str
) -> None:
    settings = replace(stage.service.settings, embed_origins=origins)
    monkeypatch.setattr(stage.service, "settings", settings)

    policy = stage.http.get(path).headers["Content-Security-Policy"]

    assert policy.endswith(f"frame-ancestors {ancestors}")
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "origins", ["grafana", "https://g.example/path", "https://a; script-src *"]
)
def test_embedding_origin_that_is_none_is_refused(origins: str) -> None:
    with pytest.raises(SettingsError, match="write http://HOST:PORT"):
        Settings(embed_origins=origins)


def test_page_stays_small() -> None:
    lines = [len((FOLDER / name).read_text().splitlines()) for name in FILES]
    assert len(lines) <= 8
    assert sum(lines) <= 900


def test_timeline_of_2000_jobs_is_about_150_kilobytes(tmp_path: Path) -> None:
    store_past_jobs(tmp_path, 2_000)
    with staged(tmp_path, MemoryWorld(4)) as opened:
        with opened.http.stream(
            "GET", "/v1/timeline?from=0", headers={"Accept-Encoding": "gzip"}
        ) as answer:
            packed = b"".join(answer.iter_raw())
        whole = opened.http.get("/v1/timeline?from=0")

    assert len(whole.json()["jobs"]["id"]) == 2_000
    assert len(packed) < 150_000


def test_timeline_shows_past_widths_and_reserved_ones(stage: Stage) -> None:
    answer = signed_in(stage, TOKEN).get("/v1/timeline?from=0").json()
    jobs = answer["jobs"]
    (number,) = [n for n, job in enumerate(jobs["id"]) if job == "team-a/job-of-team-a"]

    assert (jobs["standing"][number], jobs["words"][number]) == ("promised", "running, promised")
    assert jobs["ran"][number][1::2] == [1]
    assert jobs["will"][number][-1] == 1
    assert jobs["will"][number][-2] > answer["now"] - answer["base_at"]
    assert jobs["gpus_per_worker"][number] == 1
    assert (answer["capacity"]["gpus"], answer["capacity"]["lent"]) == ([4], [0])


def test_story_of_a_refused_job_names_its_offers_and_commands(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as opened:
        opened.submit("hotfix", deadline="5s", epochs=100, widths="1")
        opened.until("default/hotfix", lambda view: bool(view["offers"]), "refused")
        story = opened.http.get("/v1/jobs/default/hotfix/story").json()

    assert story["standing"] == "refused"
    assert story["offers"][0].startswith("deadline ")
    assert story["commands"][0] == "laxity accept hotfix 1"
    labels = [action["label"] for action in story["actions"]]
    assert labels[0] == "Accept offer 1"
    assert labels[-2:] == ["Amend", "Cancel"]
    assert len(labels) == len(story["offers"]) + 2
    assert story["chain"][-1]["decision"] == "refuse"


@pytest.mark.parametrize(("url", "links"), [("http://prefect/runs/1", 1), ("javascript:x", 0)])
def test_story_links_the_flow_run_that_follows_a_job(tmp_path: Path, url: str, links: int) -> None:
    with staged(tmp_path, MemoryWorld(1)) as opened:
        opened.submit("nightly", followed_by=url)
        story = opened.http.get("/v1/jobs/default/nightly/story").json()

    assert story["links"] == [["Its flow run in Prefect", url]] * links


def test_capacity_over_time_survives_a_restart(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as opened:
        before = opened.http.get("/v1/timeline?from=0").json()["capacity"]
    with staged(tmp_path, MemoryWorld(4, 2)) as opened:
        after = opened.http.get("/v1/timeline?from=0").json()["capacity"]

    assert after["gpus"] == [4, 6]
    assert after["at"][0] == before["at"][0]


def test_group_is_a_lane_that_sums_its_jobs_and_their_reservations() -> None:
    steps = [{"count": 1}, {"count": 2}]
    group = dict.fromkeys(("finished_at", "submitted_at")) | {
        "id": "default/release",
        "steps": steps,
    }
    group |= {"class": "hard", "state": "active", "verdict": "promised", "deadline_at": 90.0}
    ended = {"state": "finished", "finished_at": 20.0, "width_history": [[5.0, 4]], "workers": 0}
    runs = {"state": "running", "finished_at": None, "width_history": [[20.0, 1]], "workers": 1}

    row = group_row(group, [ended, runs, runs], [[(60.0, 1)], [(40.0, 1), (50.0, 2)]], 30.0)

    assert row["width_history"] == [(5.0, 4.0), (20.0, 2.0)]
    assert row["will"] == [(40.0, 2.0), (50.0, 3.0), (60.0, 1.0)]
    assert group_counts(group, [ended, runs, runs]) == "1 of 3 jobs ended"


def test_lane_of_a_group_counts_jobs_that_ended_before_the_window(tmp_path: Path) -> None:
    steps: list[Json] = [{"name": name, "after": [], "count": 1} for name in ("first", "second")]
    with staged(tmp_path, MemoryWorld(4)) as opened:
        group = {"name": "release", "deadline": "8h", "steps": steps}
        assert opened.http.post("/v1/groups", json=group).status_code == 201
        opened.submit("first", group="release", step="first")
        opened.world.finished("default/first")
        ended = opened.until("default/first", lambda view: view["finished_at"], "finished")
        opened.submit("second", group="release", step="second", epochs=1_000)
        since = {"from": ended["finished_at"] + 0.001}
        answer = opened.http.get("/v1/timeline", params=since).json()

    assert answer["jobs"]["id"] == ["default/second"]
    assert answer["groups"]["words"][0].endswith("1 of 2 jobs ended")


def test_refused_group_is_on_the_timeline_from_its_submission_on(tmp_path: Path) -> None:
    body = manifest("pretrain", epochs=10_000, widths="1")
    steps: list[Json] = [{"name": "pretrain", "after": [], "count": 1, "manifest": body}]
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as opened:
        group = {"name": "release", "deadline": "5s", "steps": steps}
        submitted_at = opened.http.post("/v1/groups", json=group).json()["submitted_at"]
        shown = opened.http.get("/v1/timeline?from=0").json()["groups"]
        later = opened.http.get("/v1/timeline", params={"from": submitted_at + 1}).json()["groups"]

    assert (shown["id"], shown["words"], shown["offers"]) == (
        ["default/release/"],
        ["refused"],
        [1],
    )
    assert later["id"] == []


def test_timeline_names_groups_of_the_callers_namespaces_only(tmp_path: Path) -> None:
    steps = [{"name": "pretrain", "after": [], "count": 1}]
    with staged(tmp_path, MemoryWorld(4)) as opened:
        for space in ("default", "team-b"):
            document = {"name": "release", "namespace": space, "deadline": "8h", "steps": steps}
            assert opened.http.post("/v1/groups", json=document).status_code == 201
            opened.submit("pretrain", namespace=space, group="release", step="pretrain")
        opened.submit("stray", group="gone", step="pretrain")
        views = JobViews(opened.service)
        answer = views.timeline(TimelineSpan(0.0, inf, lambda space: space == "team-b"))
        everything = opened.http.get("/v1/timeline?from=0").json()

    assert answer["groups"]["id"] == ["team-b/release/"]
    assert sorted(everything["groups"]["id"]) == ["default/release/", "team-b/release/"]
    groups = dict(zip(everything["jobs"]["id"], everything["jobs"]["group"], strict=True))
    assert groups["team-b/pretrain"] == "team-b/release/"
    assert groups["default/stray"] == ""  # a lane of its own
