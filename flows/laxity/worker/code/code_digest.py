"""Whether a training goes on with other code than it began with.

A worker imports the project as it is when it starts. So a file that is edited while the training is
stopped makes one result of two programs. The digests of the first start lie in the training's folder.
"""

import hashlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from laxity.durable_files import replace_file
from laxity.stderr import say
from laxity.worker.code.code_copy import in_copy, is_installed

FILE: Final = "code.json"
LAXITY: Final = Path(__file__).resolve().parents[2]
MOST_NAMED: Final = 5


def note_code(folder: Path) -> None:
    """Keep the digests of the code with which the training begins; a full disk is no failure."""
    with suppress(OSError):
        replace_file(folder / FILE, json.dumps(digest_project()))


def tell_changed_files(folder: Path | None) -> str:
    """The files as `changed_files` names them, said in the log."""
    files = changed_files(folder) if folder is not None else ""
    if files:
        say(f"{files} changed since the first start: epochs before and after are not alike")
    return files


def changed_files(folder: Path) -> str:
    """Files that were imported when the training began and have changed since: "a.py, b.py"."""
    try:
        before = dict(json.loads((folder / FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return ""
    now = digest_project()
    changed = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    more = len(changed) - MOST_NAMED
    return ", ".join([*changed[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def digest_project() -> dict[str, str]:
    """SHA-256 by file, of the imported files of neither Python, its packages nor laxity."""
    digests = {}
    here = in_copy(Path.cwd())
    for path in filter(_is_of_project, _imported_files()):
        with suppress(OSError):
            name = str(path.relative_to(here) if path.is_relative_to(here) else path)
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def _imported_files() -> list[Path]:
    modules = list(sys.modules.values())  # a list at once: threads import meanwhile
    files = (getattr(module, "__file__", None) for module in modules)
    return [Path(file).resolve() for file in files if isinstance(file, str)]


def _is_of_project(path: Path) -> bool:
    return not (path.is_relative_to(LAXITY) or is_installed(path))
