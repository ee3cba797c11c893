"""The page in a real browser: what people do there, and what they see."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity.api.client import Client
from tests.support.browser import Page, browser
from tests.support.builders import TOKEN
from tests.support.memory_world import MemoryWorld
from tests.support.page_server import Json, hand_in, page_server, sign_in, store_past_jobs
from tests.support.services import Stage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SENTENCE = "document.getElementById('sentence').textContent"
PANEL = "document.getElementById('panel').innerText"
TABLE = "document.getElementById('table').textContent"
LANES = "document.getElementById('lanes')"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path) as opened:
        yield opened


def keep_picture(page: Page, name: str) -> None:
    """The picture, for whoever wants to look: LAXITY_PICTURES names a folder."""
    if folder := os.environ.get("LAXITY_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def press(page: Page, key: str, on: str = "document.body") -> None:
    page.value(f"{on}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")


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
