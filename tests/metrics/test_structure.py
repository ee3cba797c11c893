"""What `make metrics` counts, and the rules that a change may not break further."""

from pathlib import Path

import pytest

from tests.metrics.__main__ import ROOT
from tests.metrics.imports import circles, folders_without_contract
from tests.metrics.names import begins_with_participle, participle_functions, vague_locals
from tests.metrics.rules import broken_rules, newly_broken
from tests.metrics.source import SourceFile, read_files
from tests.metrics.table import table


def test_no_rule_of_structure_is_broken_more_often_than_before() -> None:
    assert newly_broken(broken_rules(ROOT, read_files(ROOT))) == []


def test_a_longer_file_and_function_break_rules() -> None:
    text = "def long():\n" + "    pass\n" * 400
    broken = broken_rules(ROOT, [SourceFile(Path("flows/laxity/long.py"), text)] * 20)
    assert broken["files over 400 lines"] == ["flows/laxity/long.py: 401"] * 20
    assert broken["functions over 60 lines"] == ["flows/laxity/long.py:1: long, 401"] * 20
    assert [line.split(",")[0] for line in newly_broken(broken)] == [
        "files over 400 lines: 20",
        "functions over 60 lines: 20",
    ]


def test_two_public_classes_of_one_name_break_a_rule_and_a_private_one_does_not() -> None:
    files = [
        SourceFile(Path(f"flows/laxity/{name}.py"), f"class {kind}: ...\n")
        for name, kind in {"a": "Job", "b": "Job", "c": "_Row", "d": "_Row"}.items()
    ]
    broken = broken_rules(ROOT, files)["class names used twice"]
    assert broken == ["Job: flows/laxity/a.py, flows/laxity/b.py"]


def test_circles_are_groups_of_modules_that_reach_each_other() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(imports) == [["b", "c"], ["d", "e"]]


@pytest.mark.parametrize("name", ["told", "_carried_out", "kept_views", "admitted"])
def test_a_participle_at_the_front_is_seen(name: str) -> None:
    assert begins_with_participle(name)


@pytest.mark.parametrize("name", ["seed", "feed_forward", "_need", "read_table", "is_kept", "red"])
def test_verbs_that_look_like_participles_are_fine(name: str) -> None:
    assert not begins_with_participle(name)


def test_properties_may_bear_a_participle_and_vague_locals_are_counted_per_assignment() -> None:
    text = """
class Job:
    at: float

    @cached_property
    def promised(self): ...

    def stopped(self):
        found = said = 1
        found = 2
        annotations = {}
"""
    file = SourceFile(Path("flows/laxity/job.py"), text)
    assert participle_functions(file) == ["stopped"]
    assert sorted(vague_locals(file)) == ["found", "found", "said"]


def test_a_folder_outside_every_layers_contract_is_named(tmp_path: Path) -> None:
    for folder in ("", "act", "observe", "other"):
        (tmp_path / "k8s/laxity_k8s" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "k8s/laxity_k8s" / folder / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        "[[tool.importlinter.contracts]]\n"
        'type = "layers"\ncontainers = ["laxity_k8s"]\nlayers = ["(act) : observe", "world"]\n'
    )
    assert folders_without_contract(tmp_path) == ["laxity_k8s.other"]


def test_every_figure_of_the_table_is_printed_with_what_it_counts() -> None:
    files = [file for file in read_files(ROOT) if file.folder == "profiler"]
    rows = {row.name: row for row in table(ROOT, files, {"import circles": ["a, b"]})}
    assert rows["import circles"].places == ("a, b",)
    assert all(row.value for row in rows.values())
    assert float(rows["words per function name"].value) > 1
