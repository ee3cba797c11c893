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
from traceback import extract_tb
from types import ModuleType
from typing import Any, Final

from laxity.job.parameters import ParameterError, from_json
from laxity.worker.code.code_copy import in_copy, is_installed

PARAMETER: Final = "training"
_OURS: Final = Path(__file__).parents[2]


class EntryError(ValueError):
    """The training function cannot be found, or its parameters do not fit."""


def load_function(entry: str) -> Callable[..., Any]:
    """Import the user's function."""
    place, colon, name = entry.rpartition(":")
    if not (colon and place and all(part.isidentifier() for part in name.split("."))):
        raise EntryError(f"{entry!r}: expected module:function or /path/file.py:function")
    module = import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    target: Any = module
    for part in name.split("."):
        target = getattr(target, part, None)
    if target is None:
        raise EntryError(f"{place} has no {name!r}")
    if hasattr(target, "__laxity__"):
        target = target.function  # the function inside what deadline_flow made
    if not callable(target):
        raise EntryError(f"{entry} is a {type(target).__name__}, not a function")
    function: Callable[..., Any] = target
    return function


def call_arguments(function: Callable[..., Any], training: object, text: str) -> dict[str, Any]:
    """The keyword arguments of a call: `training` where it is asked for, and the JSON parameters.

    The parameters are of the types that the function declares; EntryError says what does not fit.
    """
    try:
        parameters = json.loads(text or "{}")
    except ValueError as error:
        raise EntryError(f"the parameters are not JSON: {error}") from error
    if not isinstance(parameters, dict):
        raise EntryError(f"the parameters are a {type(parameters).__name__}, not a JSON object")
    signature = inspect.signature(function)
    try:
        parameters = from_json(function, parameters)
    except ParameterError as error:
        raise EntryError(f"{function.__name__}{signature}: parameter {error}") from error
    if wanted := _training_parameter(signature, type(training)):
        parameters[wanted] = training
    try:
        signature.bind(**parameters)
    except TypeError as error:
        raise EntryError(f"{function.__name__}{signature}: {error}") from error
    return parameters


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
    folders = [str(file.parent), str(in_copy(Path.cwd()))]
    sys.path[:0] = folders
    is_taken = file.stem in sys.stdlib_module_names or file.stem in sys.modules
    name = f"{file.stem}_training" if is_taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise EntryError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def package_of(file: Path) -> tuple[Path, str] | None:
    """The folder to import from and the dotted name of a file in a package; None outside of one."""
    parts, folder = [file.stem], file.parent
    while folder.name.isidentifier() and (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return (folder, ".".join(parts)) if len(parts) > 1 else None


def error_place(error: BaseException) -> str:
    """The innermost line of the user's own code that this came through: " (train.py, line 27)"."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)] or frames
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _is_users(file: str) -> bool:
    path = Path(file)
    return path.is_absolute() and not is_installed(path) and not path.is_relative_to(_OURS)
