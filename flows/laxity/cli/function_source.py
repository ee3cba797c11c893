"""The function that `submit` and `whatif` are given by name: its file imported, the function found.

The file is the user's, and runs as it is imported: whatever goes wrong in it is told as theirs, with
its line, and never ends the command with a code that means something else.
"""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from laxity.cli.exit_codes import USAGE, CommandError
from laxity.cli.optional_packages import install_advice
from laxity.cli.variable_set import variable_set
from laxity.worker.code.entrypoint import error_place, import_file, package_of

MOST_NAMED: Final = 8


def load_declared(source: str) -> tuple[Callable[..., Any], Any]:
    """The function and, if it is a deadline_flow, its declaration; Prefect is not imported."""
    place, _, path = source.rpartition(":")
    module = import_alone(source, place)
    target: Any = module
    for part in path.split("."):
        if not hasattr(target, part):
            message = f"there is no {path} in {place}{_functions_text(module)}"
            raise CommandError(message, code=USAGE)
        target = getattr(target, part)
    function = getattr(target, "function", target)
    if not inspect.isroutine(function):
        message = (
            f"{source} is of type {type(target).__name__}, not a function{_functions_text(module)}"
        )
        raise CommandError(message, code=USAGE)
    return function, getattr(target, "__laxity__", None)


def import_alone(source: str, place: str) -> ModuleType:
    from laxity.flow.signature import ENV_ALONE

    try:
        with variable_set(ENV_ALONE, "1"):
            return _load_module(place)
    except (Exception, SystemExit) as error:
        raise CommandError(f"{source}: {_import_problem(error)}", code=USAGE) from error


def _load_module(name: str) -> ModuleType:
    """A module by its file, or by its dotted name as seen from the working folder."""
    path = Path(name)
    if path.suffix == ".py":
        if not path.exists():
            raise ImportError(f"no file {path.resolve()}")
        package = package_of(path.resolve())
        if package is None:
            return import_file(path)
        root, name = package
        sys.path.insert(0, str(root))
    elif not all(part.isidentifier() for part in name.split(".")):
        raise ImportError(f"{name!r} is neither a file.py nor a package.module")
    sys.path.insert(0, str(Path.cwd()))
    return import_module(name)


def _import_problem(error: BaseException) -> str:
    """What went wrong while the user's file was imported; where, if the words do not say it."""
    if isinstance(error, ModuleNotFoundError) and (hint := install_advice(error)):
        return hint
    if isinstance(error, ImportError | SyntaxError | OSError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"it ends the program ({error.code}) when it is imported{error_place(error)}"
    message = f": {error}" if str(error) else ""
    return f"importing it raises {type(error).__name__}{error_place(error)}{message}"


def _functions_text(module: ModuleType) -> str:
    """The functions that could have been meant, if there are any."""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and _is_its(value, module)
    ]
    return f"; it has: {', '.join(names[:MOST_NAMED])}" if names else ""


def _is_its(value: Any, module: ModuleType) -> bool:
    is_own = inspect.isfunction(value) and value.__module__ == module.__name__
    return is_own or hasattr(value, "__laxity__")
