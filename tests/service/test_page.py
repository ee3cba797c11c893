"""The page in a real browser: what people do there, and what they see."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from laxity.api.client import Client
from tests.support.browser import Page, browser
from tests.support.builders import TOKEN
from tests.support.memory_world import MemoryWorld
from tests.support.page_server import Json, hand_in, page_server, sign_in, store_past_jobs
from tests.support.page_use import (
    LANES,
    PANEL,
    SENTENCE,
    TABLE,
    answer,
    keep_picture,
    press,
    press_button,
)
from tests.support.services import Stage, manifest, wait_until
from tests.support.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path) as opened:
        yield opened


def hand_in_when_asked(page: Page) -> None:
    page.wait_for("document.getElementById('sign-in')?.open")
    hand_in(page, TOKEN)
    page.wait_for(SENTENCE)


def zoom_frames_ms(page: Page, number: int = 40) -> list[float]:
    """Milliseconds of each frame while the lanes are zoomed out and in again."""
    page.value(
        "(async () => { const canvas = document.querySelector('#lanes canvas'); window.frames_ms = [];"
        f"for (let i = 0; i < {number}; i++) {{"
        f"canvas.dispatchEvent(new WheelEvent('wheel', {{deltaY: i < {number // 2} ? 60 : -60, ctrlKey: true, bubbles: true, cancelable: true}}));"
        "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
        "window.frames_ms.push(Number(canvas.dataset.frameMs)); } window.isZoomed = true; })(); 1"
    )
    page.wait_for("window.isZoomed")
    frames: list[float] = page.value("window.frames_ms")
    return frames


def past_columns(stage: Stage) -> Json:
    """What the timeline says of the jobs that have ended."""
    answer = stage.http.get("/v1/timeline", params={"from": 0}).json()["jobs"]
    ended = [n for n, at in enumerate(answer["finished_at"]) if at is not None]
    return {name: [column[n] for n in ended] for name, column in answer.items()}


def test_wrong_token_is_named_and_the_right_one_signs_in(tmp_path: Path, page: Page) -> None:
    with page_server(tmp_path / "home", MemoryWorld(2)) as (_, url):
        page.open(url)
        page.wait_for("document.getElementById('sign-in')?.open")
        hand_in(page, "no-token-of-this-service")
        page.shows("This service does not know that token.")
        hand_in(page, TOKEN)

        page.wait_for(f"{SENTENCE}.includes('0 promised')")
        assert page.value("document.cookie") == ""  # no script can read it
        page.shows("No jobs in this time.", "laxity submit")
        keep_picture(page, "no-jobs")


def test_new_job_appears_and_its_broken_promise_without_reloading(
    tmp_path: Path, page: Page
) -> None:
    with page_server(tmp_path / "home", MemoryWorld(2)) as (stage, url):
        sign_in(page, url)
        page.value("window.isSamePage = true")
        stage.submit("nightly", deadline="25s", epochs=10)
        page.wait_for(f"{SENTENCE}.includes('1 promised')")
        page.wait_for(f"{SENTENCE}.includes('2 of 2 slots used')")

        page.shows("broken")
        assert page.value("window.isSamePage") is True
        page.wait_for("document.getElementById('lists').innerText.includes('nightly')")


def test_2000_jobs_zoom_within_a_frame_and_survive_a_restart(tmp_path: Path, page: Page) -> None:
    home, world = tmp_path / "home", MemoryWorld(*[8] * 40)
    store_past_jobs(home, 1_960)
    with page_server(home, world) as (stage, url):
        for number in range(40):
            stage.submit(f"live-{number:02}", deadline=f"{1 + number}h", epochs=2_000 + number)
        page.open(f"{url}?back=168")
        hand_in_when_asked(page)
        page.shows("40 promised", "the first 200 of 2000")
        frames = sorted(zoom_frames_ms(page))
        print(f"2,000 jobs: {frames[20]:.2f} ms a frame, nine of ten within {frames[36]:.2f} ms")  # noqa: T201 - shown by pytest -s
        page.value("document.getElementById('now').click()")
        keep_picture(page, "2000-jobs")
        before = past_columns(stage)
    with page_server(home, world, port=int(url.rpartition(":")[2].rstrip("/"))) as (stage, _):
        assert past_columns(stage) == before
        page.wait_for("!document.getElementById('status').textContent")
        stage.submit("after-restart", deadline="50h")
        page.shows("41 promised")

    assert frames[20] < 16.0  # the median: other processes stretch single frames


def test_filters_stay_in_the_address_and_the_token_does_not(tmp_path: Path, page: Page) -> None:
    with page_server(tmp_path / "home", MemoryWorld(4)) as (stage, url):
        stage.submit("nightly", deadline="1h", epochs=100, widths="1")
        stage.submit("probe", epochs=100, widths="1", namespace="team-b")
        sign_in(page, url)
        page.shows("1 promised")
        page.value("[...document.querySelectorAll('#sentence button')][0].click()")

        page.wait_for(f"{TABLE}.includes('nightly') && !{TABLE}.includes('probe')")
        assert page.value("location.search") == "?standing=promised"
        page.open(f"{url}?namespace=team-b&text=PROBE")
        page.wait_for(f"{TABLE}.includes('probe') && !{TABLE}.includes('nightly')")
        page.value("document.getElementById('clear').click()")
        page.wait_for(f"{TABLE}.includes('probe') && {TABLE}.includes('nightly')")
        assert TOKEN not in page.value("location.href")


def test_group_folds_its_jobs_and_is_a_filter(tmp_path: Path, page: Page) -> None:
    steps: list[Json] = [{"name": name, "after": [], "count": 1} for name in ("left", "right")]
    group = {"name": "release", "deadline": "2h", "steps": steps}
    with page_server(tmp_path / "home", MemoryWorld(4)) as (stage, url):
        assert stage.http.post("/v1/groups", json=group).status_code == 201
        for name in ("left", "right"):
            stage.submit(name, epochs=100, widths="1", group="release", step=name)
        stage.submit("alone", epochs=100, widths="1")
        sign_in(page, url)
        page.shows("left", "alone")
        keep_picture(page, "group")
        press(page, "ArrowDown", LANES)
        while "release/" not in page.value(f"{LANES}.ariaLabel"):
            press(page, "ArrowDown", LANES)
        assert "0 of 2 jobs ended" in page.value(f"{LANES}.ariaLabel")
        press(page, "ArrowDown", LANES)
        assert page.value(f"{LANES}.ariaLabel").startswith(("left", "right"))
        press(page, "ArrowUp", LANES)
        press(page, "Enter", LANES)  # folds
        press(page, "ArrowDown", LANES)
        assert not page.value(f"{LANES}.ariaLabel").startswith(("left", "right"))
        page.open(f"{url}?group=default/release/")
        page.wait_for(f"{TABLE}.includes('left') && !{TABLE}.includes('alone')")


def test_keys_open_a_refused_job_with_its_offers_and_close_it(tmp_path: Path, page: Page) -> None:
    with page_server(tmp_path / "home", MemoryWorld(1)) as (stage, url):
        stage.submit("hotfix", deadline="5s", epochs=100, widths="1")
        sign_in(page, url)
        page.shows("1 refused in the last day", "hotfix")
        press(page, "ArrowDown", LANES)
        assert "hotfix: refused" in page.value(f"{LANES}.ariaLabel")
        press(page, "Enter", LANES)

        page.wait_for(f"{PANEL}.includes('Instead this would do')")
        page.wait_for(f"{PANEL}.includes('laxity accept hotfix 1')")
        page.wait_for("document.activeElement.innerText === 'Close'")
        press(page, "Escape")
        assert page.value("document.getElementById('panel').hidden") is True
        press(page, "/")
        assert page.value("document.activeElement.id") == "text"


def test_refused_group_tells_its_offers_and_one_declared_anew_is_amended_and_cancelled(
    tmp_path: Path, page: Page
) -> None:
    steps: list[Json] = [
        {
            "name": name,
            "after": after,
            "count": 1,
            "manifest": manifest(name, epochs=100, widths="1"),
        }
        for name, after in (("pretrain", []), ("evaluate", ["pretrain"]))
    ]
    with page_server(tmp_path / "home", MemoryWorld(1)) as (stage, url):
        group = {"name": "release", "deadline": "5s", "steps": steps}
        assert stage.http.post("/v1/groups", json=group).json()["state"] == "refused"
        sign_in(page, url)
        page.shows("1 refused in the last day", "release/")
        press(page, "ArrowDown", LANES)
        press(page, "Enter", LANES)
        page.wait_for(f"{PANEL}.includes('Instead this would do')")
        keep_picture(page, "refused-group")
        assert "laxity amend" not in page.value(PANEL), "it has no jobs, and nobody to submit them"

        stage.http.post("/v1/groups", json=group | {"deadline": "90d"}).raise_for_status()
        page.wait_for(f"{PANEL}.includes('active, promised')")
        due_at = stage.http.get("/v1/groups/default/release").json()["deadline_at"]
        press_button(page, "Amend")
        page.value("document.querySelector('#ask input').value = '80d'")
        answer(page, "yes")
        wait_until(
            lambda: stage.http.get("/v1/groups/default/release").json()["deadline_at"] < due_at,
            "amended",
        )
        page.shows("0 refused in the last day")
        press_button(page, "Cancel")
        answer(page, "yes")
        page.wait_for(f"{PANEL}.includes('cancelled, promised')")


def test_offer_is_accepted_deadline_amended_and_job_cancelled_after_a_yes(
    tmp_path: Path, page: Page
) -> None:
    with page_server(tmp_path / "home", MemoryWorld(1)) as (stage, url):
        stage.submit("hotfix", deadline="5s", epochs=1000, widths="1")
        page.open(f"{url}?job=default/hotfix")
        hand_in_when_asked(page)
        press_button(page, "Accept offer 1")
        keep_picture(page, "ask")
        answer(page, "no")
        stage.until("default/hotfix", lambda view: view["state"] == "refused", "still refused")
        press_button(page, "Accept offer 1")
        answer(page, "yes")
        view = stage.until("default/hotfix", lambda view: view["verdict"] == "promised", "promised")

        press_button(page, "Amend")
        page.value("document.querySelector('#ask input').value = '3h'")
        answer(page, "yes")
        stage.until(
            "default/hotfix", lambda now: now["deadline_at"] > view["deadline_at"], "amended"
        )
        stage.world.send_epochs("default/hotfix", 4, epoch_s=1.0)
        page.wait_for("document.querySelector('#panel img')?.naturalWidth > 0")
        keep_picture(page, "panel")

        press_button(page, "Cancel")
        assert "Cancel default/hotfix?" in page.value("document.getElementById('ask').innerText")
        answer(page, "yes")
        stage.until("default/hotfix", lambda view: view["state"] == "cancelled", "cancelled")
        page.wait_for(f"{PANEL}.includes('cancelled')")
        assert page.value("location.search") == "?job=default%2Fhotfix"


def test_embedded_page_has_no_buttons_that_change_anything(tmp_path: Path, page: Page) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with (
        page_server(tmp_path / "home", MemoryWorld(1)) as (stage, url),
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as host,
    ):
        Thread(target=host.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{host.server_port}"
        stage.service.settings = replace(stage.service.settings, embed_origins=origin)
        stage.submit("nightly", deadline="1h", epochs=100, widths="1")
        frame = f"<iframe src='{url}?embed=1&job=default/nightly' width=1200 height=900></iframe>"
        (tmp_path / "dashboard.html").write_text(frame)
        sign_in(page, url)
        page.open(f"{origin}/dashboard.html")

        until(lambda: "Copy" in (in_frame(page, PANEL) or ""), "the job in the frame")
        assert "Amend" not in in_frame(page, PANEL)
        assert in_frame(page, "document.querySelector('nav').offsetHeight") == 0
        keep_picture(page, "embedded")
        host.shutdown()


def in_frame(page: Page, expression: str) -> Any:
    """What the expression is in the page's only frame; None if there is no such value."""
    page.wait_for("document.querySelector('iframe') !== null")
    (child,) = page.ask("Page.getFrameTree")["frameTree"].get("childFrames", [None])
    if child is None:
        return None
    world = page.ask("Page.createIsolatedWorld", frameId=child["frame"]["id"])
    context = world["executionContextId"]
    answer = page.ask("Runtime.evaluate", expression=expression, contextId=context)
    return answer["result"].get("value")


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, which finds what people with disabilities cannot use."""
    folder, npm = tmp_path_factory.mktemp("axe"), shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine")
    packed = subprocess.run([npm, "pack", "axe-core@4.14.1"], cwd=folder, check=False)
    if packed.returncode:
        pytest.skip("no npm registry is reached from this machine")
    with tarfile.open(folder / "axe-core-4.14.1.tgz") as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source
        return source.read().decode()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1500, 360], ids=["wide", "narrow"])
def test_axe_finds_nothing_serious(
    tmp_path: Path, page: Page, axe: str, scheme: str, width: int
) -> None:
    with page_server(tmp_path / "home", MemoryWorld(2)) as (stage, url):
        for number in range(7):
            stage.submit(f"nightly-{number}", deadline=f"{1 + number}h", epochs=1_000, widths="1")
        stage.submit("hotfix", deadline="5s", epochs=1000, widths="1")
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.ask("Emulation.setEmulatedMedia", features=[feature])
        page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 700,
        )  # fmt: skip
        sign_in(page, url)
        page.shows("hotfix")
        keep_picture(page, f"8-jobs-{scheme}-{width}")
        found = serious(page, axe)
        page.open(f"{url}?job=default/hotfix")
        page.wait_for(f"{PANEL}.includes('Accept offer 1')")
        keep_picture(page, f"panel-{scheme}-{width}")
        found += serious(page, axe)

    assert found == []


def serious(page: Page, axe: str) -> list[str]:
    """What axe calls serious or critical, with its places."""
    page.value(f"{axe}; 1")
    judged = page.ask(
        "Runtime.evaluate",
        expression="axe.run().then(({violations}) => violations.map("
        "({id, impact, nodes}) => [impact, id, nodes.map(node => node.html)]))",
        awaitPromise=True,
        returnByValue=True,
    )
    return [row for row in judged["result"]["value"] if row[0] in {"serious", "critical"}]


def test_names_with_markup_and_200_characters_stay_text(tmp_path: Path, page: Page) -> None:
    home, long_name = tmp_path / "home", "a" * 200
    store_past_jobs(home, name="<img src=x onerror=alert(1)>")
    store_past_jobs(home, name=long_name)
    with page_server(home, MemoryWorld(1)) as (_, url):
        page.open(f"{url}?back=168")
        hand_in_when_asked(page)
        page.wait_for(f"{TABLE}.includes('<img src=x onerror=alert(1)>')")

        assert page.value("document.images.length") == 0
        page.value(
            "[...document.querySelectorAll('#table button')].find(b => b.innerText.startsWith('<')).click()"
        )
        page.wait_for(f"{PANEL}.includes('no name that a Job can have')")
        assert page.value(f"{TABLE}.includes('{long_name}')")
        assert page.value("document.documentElement.scrollWidth <= innerWidth")


def test_narrow_page_shows_lists_instead_of_lanes(tmp_path: Path, page: Page) -> None:
    with page_server(tmp_path / "home", MemoryWorld(2)) as (stage, url):
        stage.submit("nightly", deadline="1h", epochs=100)
        page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=360, height=800, deviceScaleFactor=1, mobile=True,
        )  # fmt: skip
        sign_in(page, url)
        page.shows("1 promised", "nightly")

        assert page.value(f"{LANES}.offsetHeight") == 0
        assert page.value("document.querySelector('#table table').offsetHeight > 20")
        assert page.value("document.documentElement.scrollWidth <= 360")
        keep_picture(page, "narrow")


def test_code_of_laxity_ui_signs_in_once(tmp_path: Path, page: Page) -> None:
    with page_server(tmp_path / "home", MemoryWorld(2)) as (_, url):
        address = Client(url.rstrip("/"), TOKEN).page_address()
        page.open(address)
        page.wait_for(f"{SENTENCE}.includes('0 promised')")

        assert page.value("location.hash") == ""
        page.value("document.getElementById('sign-out').click()")
        page.wait_for("document.getElementById('sign-in')?.open")
        page.open("about:blank")
        page.open(address)
        page.wait_for("document.getElementById('sign-in')?.open")
