"""Run the notebooks on the kept figures and keep what they show: `python notebooks/execute.py [NAME ...]`.

Times, counters and the interpreter's version are taken out, so that the same figures and the same
libraries give the same bytes.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
CELL_TIMEOUT_S: Final = 600


def executed(path: Path) -> Any:
    """A notebook with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    os.environ.pop("MPLBACKEND", None)  # the kernel's own shows figures in the page
    page = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(page, timeout=CELL_TIMEOUT_S, resources=resources).execute()
    return page


def still(page: Any) -> str:
    """A notebook as text, without anything that differs from run to run."""
    page.metadata.language_info = {"name": "python"}
    for cell in page.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.pop("execution_count", None)
            output["metadata"] = {}
            if output.output_type == "execute_result":
                output["execution_count"] = None
        if cell.cell_type == "code":
            cell.execution_count = None
    return f"{json.dumps(_lines(page), indent=1, ensure_ascii=False, sort_keys=True)}\n"


def _lines(page: Any) -> Any:
    """Long texts as lists of lines, as notebooks are kept."""
    from nbformat.v4.rwbase import split_lines, strip_transient

    return split_lines(strip_transient(page))


def main() -> None:
    named = [HERE / f"{name}.ipynb" for name in sys.argv[1:]]
    for path in named or sorted(HERE.glob("*.ipynb")):
        path.write_text(still(executed(path)), encoding="utf-8")
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
