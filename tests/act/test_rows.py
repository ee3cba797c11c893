"""Rows with revisions, merge patches, and watches that miss nothing."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.json_tree import get_in, merge_patch
from laxity_k8s.cluster_api import ApiError, Change, Json
from laxity_k8s.local import object_store as rows_module
from laxity_k8s.local.local_cluster import RowWatch
from laxity_k8s.local.object_store import ObjectStore, is_selected
from laxity_k8s.objects.pods import format_ranges, parse_ranges


def thing(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, **more}


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="a list is replaced"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": None, "d": 1}}, {"a": {"d": 1}}, id="deep"),
        pytest.param({"a": "foo"}, None, None, id="null as a whole"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="an old null stays"),
        pytest.param([1, 2], {"a": "b"}, {"a": "b"}, id="a list becomes an object"),
        pytest.param(
            {}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls in what is new"
        ),
    ],
)
def test_merge_patches_do_what_the_standard_says(target: Any, patch: Any, want: Any) -> None:
    assert merge_patch(target, patch) == want


def test_digging_ends_where_nothing_is() -> None:
    assert get_in({"a": [{"b": 1}]}, "a", 0, "b") == 1
    assert get_in({"a": [{"b": 1}]}, "a", 1, "b") is None
    assert get_in({"a": 5}, "a", "b", "c") is None


@given(st.sets(st.integers(0, 60)))
def test_completed_indexes_are_read_back_as_written(indexes: set[int]) -> None:
    assert parse_ranges(format_ranges(indexes)) == indexes


def test_each_change_has_a_higher_revision_and_an_equal_object_has_none(tmp_path: Path) -> None:
    rows = ObjectStore(tmp_path / "db")
    first = rows.put("jobs", thing("a"))
    same = rows.put("jobs", first)
    second = rows.put("jobs", {**first, "x": 1})
    assert same == first
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    rows.close()


def test_what_is_undone_was_never_there(tmp_path: Path) -> None:
    rows = ObjectStore(tmp_path / "db")
    kept = rows.put("jobs", thing("kept"))

    def undone() -> None:
        with rows.write_together():
            rows.put("jobs", thing("undone"))
            rows.remove("jobs", "default/kept")
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        undone()
    assert list(rows.list_objects("jobs").items) == [kept]
    assert [change.type for _, change in rows.changes("jobs", 0)[0]] == ["ADDED"]
    rows.close()


def test_rows_and_their_revisions_survive(tmp_path: Path) -> None:
    rows = ObjectStore(tmp_path / "db")
    made = rows.put("jobs", thing("a"))
    rows.close()
    again = ObjectStore(tmp_path / "db")
    assert again.get("jobs", "default/a") == made
    assert int(again.put("jobs", thing("b"))["metadata"]["resourceVersion"]) > int(
        made["metadata"]["resourceVersion"]
    )
    again.close()


def test_a_watch_that_fell_behind_is_told_all_that_is_and_what_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "KEPT_CHANGES", 1)
    rows = ObjectStore(tmp_path / "db")
    seen: list[Change] = []
    watch = RowWatch(rows, "jobs", since=0, on_change=seen.append)
    watch.stop()
    watch._ids = {"default/gone"}
    watch._since = int(rows.put("jobs", thing("a"))["metadata"]["resourceVersion"]) - 1
    for number in range(5):
        rows.put("jobs", thing("a", number=number))
    rows.compact()
    with pytest.raises(ApiError) as old:
        rows.changes("jobs", 0)
    assert old.value.status == 410
    told = [(change.type, change.object["metadata"]["name"]) for change in watch._next_changes()]
    assert told == [("DELETED", "gone"), ("MODIFIED", "a")]
    rows.close()


@pytest.mark.parametrize(
    ("selector", "want"), [("", True), ("a", True), ("a=1", True), ("a=2", False), ("b", False)]
)
def test_selectors(selector: str, want: bool) -> None:
    assert is_selected(selector, {"a": "1"}) is want
