"""Something is done when the training code imports a library, however it has looked for it before."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from laxity.worker.code.import_hooks import when_imported


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_library.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "a_library", raising=False)
    return "a_library"


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_the_call_comes_once_at_the_import_after_any_number_of_looks(
    library: str, looks: int
) -> None:
    heard: list[str] = []
    when_imported(
        library,
        lambda module: heard.append(f"imported {module.ANSWER}"),
        before=lambda: heard.append("begins"),
    )

    specs = [find_spec(library) for _ in range(looks)]

    assert all(specs)
    assert heard == []
    module = importlib.import_module(library)
    importlib.reload(module)
    assert heard == ["begins", "imported 42"]


def test_a_library_that_is_not_there_is_still_not_there(library: str) -> None:
    when_imported("no_such_library", lambda _: None)

    assert find_spec("no_such_library") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_library")
