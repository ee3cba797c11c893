"""From `module:function` or `/path/file.py:function` to the user's function and its parameters.

Prefect is not imported: what `deadline_flow` made of a function still knows the function.
"""

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PARAMETER: Final = "training"


class EntryError(ValueError):
    """The training function cannot be found, or its parameters do not fit."""


def load_function(entry: str) -> Callable[..., Any]:
    """Import the user's function."""
    place, colon, name = entry.rpartition(":")
    if not (colon and place and all(part.isidentifier() for part in name.split("."))):
        raise EntryError(f"{entry!r}: expected module:function or /path/file.py:function")
    module = import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise EntryError(f"{place} has no {name!r}")
    if hasattr(found, "__laxity__"):
        found = found.function  # the function inside what deadline_flow made
    if not callable(found):
        raise EntryError(f"{entry} is a {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function


def arguments(function: Callable[..., Any], training: object, text: str) -> dict[str, Any]:
    """The keyword arguments of a call: `training` where it is asked for, and the JSON parameters."""
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise EntryError(f"the parameters are not JSON: {error}") from error
    if not isinstance(given, dict):
        raise EntryError(f"the parameters are a {type(given).__name__}, not a JSON object")
    signature = inspect.signature(function)
    if wanted := _training_parameter(signature, type(training)):
        given[wanted] = training
    try:
        signature.bind(**given)
    except TypeError as error:
        raise EntryError(f"{function.__name__}{signature}: {error}") from error
    return given


def _training_parameter(signature: inspect.Signature, kind: type) -> str:
    """The parameter annotated as Training, else the one of that name."""
    for name, parameter in signature.parameters.items():
        annotation = parameter.annotation
        if annotation is kind or str(annotation).rpartition(".")[2].strip("'\"") == kind.__name__:
            return name
    return PARAMETER if PARAMETER in signature.parameters else ""


def import_file(path: Path) -> ModuleType:
    """Import a file as `python file.py` would run it: by its stem, its folder on the path.

    As in Prefect, the folder and the working directory also serve relative imports.
    """
    if not path.is_file():
        raise EntryError(
            f"{path} is not a file where the worker runs; in an image, name its own path"
        )
    file = path.resolve()
    folders = [str(file.parent), str(Path.cwd())]
    sys.path[:0] = folders
    is_taken = file.stem in sys.stdlib_module_names or file.stem in sys.modules
    name = f"{file.stem}_training" if is_taken else file.stem
    found = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    if found is None or found.loader is None:
        raise EntryError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def package_of(file: Path) -> tuple[Path, str] | None:
    """The folder to import from and the dotted name of a file in a package; None outside of one."""
    parts, folder = [file.stem], file.parent
    while folder.name.isidentifier() and (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return (folder, ".".join(parts)) if len(parts) > 1 else None
