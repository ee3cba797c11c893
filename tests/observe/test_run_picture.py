"""The picture of an MLflow run: what it shows, and how often it is drawn."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laxity import names
from laxity_scheduler.notifications.mlflow_sink import artifact_folder
from laxity_scheduler.notifications.run_picture import (
    FILE,
    MOST_POINTS,
    RunPictures,
    draw_run,
    thin,
)

SVG = "{http://www.w3.org/2000/svg}"


class Store:
    """An MLflow store with these metrics, in which pictures are counted."""

    def __init__(self, tracking_uri: str = "sqlite:///mlflow.db", folder: str = "/here") -> None:
        self.tracking_uri, self._folder = tracking_uri, folder
        self.pictures: list[str] = []
        self.is_full = False

    def get_run(self, run_id: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=self._folder))

    def get_metric_history(self, run_id: str, name: str) -> Sequence[Any]:
        rows = {names.EPOCH_ACTUAL: [(1, 2.0), (1, 3.0), (2, float("inf"))]}.get(name, [])
        return [SimpleNamespace(step=step, value=value) for step, value in rows]

    def log_text(self, run_id: str, text: str, file: str) -> None:
        if self.is_full:
            raise OSError("no room")
        assert file == FILE
        self.pictures.append(text)


def elements(picture: str, tag: str) -> list[Mapping[str, str]]:
    return [node.attrib for node in ET.fromstring(picture).iter(f"{SVG}{tag}")]  # noqa: S314 - ours


def test_picture_shows_band_deadline_epochs_and_finish() -> None:
    series = {
        names.EPOCH_ACTUAL: [(1, 9.0), (2, 11.0)],
        names.EPOCH_P50: [(1, 10.0), (2, 10.0)],
        names.EPOCH_P90: [(1, 15.0), (2, 12.0)],
        names.FINISH_P50: [(1, 40.0)],
        names.FINISH_P90: [(1, 60.0)],
        names.FINISH_DEADLINE: [(1, 100.0)],
        names.FINAL_ACTUAL: [(4, 50.0)],
    }

    picture = draw_run(series, "default/a <b>: kept", 4)

    assert len(elements(picture, "circle")) == 3
    assert len(elements(picture, "polygon")) == 2
    assert [line["class"] for line in elements(picture, "polyline")] == ["p50", "p50", "dl"]
    (deadline,) = (line for line in elements(picture, "polyline") if line["class"] == "dl")
    first, last = (point.split(",") for point in deadline["points"].split())
    assert (first[0], last[0], first[1] == last[1]) == ("80.0", "700.0", True)
    assert "default/a &lt;b&gt;: kept" in picture


@pytest.mark.parametrize("length", [0, 1, 2, MOST_POINTS, MOST_POINTS + 1, 10_000])
def test_long_series_are_thinned_and_keep_their_ends(length: int) -> None:
    points = [(step, 1.0) for step in range(1, length + 1)]

    kept = thin(points)

    assert len(kept) <= MOST_POINTS + 1
    assert (kept[:1], kept[-1:]) == (points[:1], points[-1:])


@pytest.mark.slow
def test_picture_of_a_real_store_is_an_artifact_of_the_run(mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(mlflow_uri)
    run_id = client.create_run(client.create_experiment("pictures")).info.run_id
    for step, p90_s in enumerate([15.0, 12.0], start=1):
        for name, value in ((names.EPOCH_P50, 10.0), (names.EPOCH_P90, p90_s)):
            client.log_metric(run_id, name, value, step=step)

    RunPictures().update(client, run_id, "default/a: promised", 4, is_last=False)

    picture = Path(client.download_artifacts(run_id, FILE)).read_text()
    assert "default/a: promised" in picture
    (band,) = elements(picture, "polygon")
    assert len(band["points"].split()) == 4


def test_empty_run_has_a_picture_without_points() -> None:
    picture = draw_run({}, "default/a: queued", 0)

    assert elements(picture, "circle") == elements(picture, "polyline") == []


def test_picture_is_drawn_every_ten_seconds_and_at_the_end() -> None:
    now = [0.0]
    pictures, store = RunPictures(lambda: now[0]), Store()

    for at in (0.0, 5.0, 9.9, 10.0, 12.0):
        now[0] = at
        pictures.update(store, "run", "title", 4, is_last=False)  # type: ignore[arg-type]
    pictures.update(store, "run", "ended", 4, is_last=True)  # type: ignore[arg-type]

    assert len(store.pictures) == 3
    assert "ended" in store.pictures[-1]
    assert (
        len(elements(store.pictures[-1], "circle")) == 1
    )  # the last value of a step that is finite


def test_store_without_room_is_asked_again_ten_minutes_later() -> None:
    now = [0.0]
    pictures, store = RunPictures(lambda: now[0]), Store()
    store.is_full = True

    pictures.update(store, "run", "title", 4, is_last=False)  # type: ignore[arg-type]
    store.is_full = False
    for at in (599.0, 600.0):
        now[0] = at
        pictures.update(store, "run", "title", 4, is_last=False)  # type: ignore[arg-type]

    assert len(store.pictures) == 1


def test_picture_is_not_left_in_a_folder_that_the_server_does_not_see() -> None:
    store = Store("http://mlflow:5000", "file:///srv/mlruns")

    RunPictures().update(store, "run", "title", 4, is_last=True)  # type: ignore[arg-type]

    assert store.pictures == []


def test_artifacts_of_a_sqlite_store_lie_beside_its_file() -> None:
    assert artifact_folder("sqlite:////srv/home/mlflow.db") == "/srv/home/mlartifacts"
    assert artifact_folder("http://mlflow:5000") is None
    assert artifact_folder("postgresql://host/mlflow") is None
