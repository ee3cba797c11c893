"""Where a trace is: as it was named, under LAXITY_TRACES, or among the samples that ship.

One that is nowhere is told with the places that were looked at, and with what there is instead.
"""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from laxity_lab.traces.traces import FORMATS, Format, TraceError, open_text

SAMPLES: Final = Path(__file__).parent / "samples"
TRACES: Final = "LAXITY_TRACES"  # folder of traces and throughput tables
SUFFIXES: Final = (".csv", ".log", ".csv.gz", ".log.gz")
MOST_NAMED: Final = 12
HINTS: Final = {"cluster": "itp", "195job": "itp", "vpollux": "elasticflow", "ls6": "mirage"}
# A column that no other format has.
COLUMNS: Final[dict[str, Format]] = {
    "submission_time": "itp",
    "ddl": "elasticflow",
    "timestamp": "philly",
    "expect_time_list": "chronus",
    "JobID": "mirage",
}


def resolve(path: Path) -> Path:
    """The path, or the same one under LAXITY_TRACES or in the samples; as it is if it is nowhere."""
    if path.is_absolute():
        return path
    return next((place for place in _places(path) if place.exists()), path)


def trace_at(path: Path) -> Path:
    """The file of a trace. TraceError says where it was looked for, and what there is."""
    file = resolve(path)
    if file.is_file():
        return file
    if file.is_dir():
        inside = sorted(child.name for child in file.iterdir() if _is_trace(child))
        raise TraceError(f"{path} is a folder, not a trace{_there_is(inside)}")
    traces = list_traces()
    near = get_close_matches(str(path), traces, n=1) or _of_the_same_file(path, traces)
    suggestion = f"; did you mean {near[0]}?" if near else ""
    message = f"no trace {path}: looked {_describe_places(path)}{_there_is(traces)}{suggestion}"
    raise TraceError(message)


def format_of(path: Path, asked: str) -> Format:
    """The format that was asked for, or what the file's name or its columns tell."""
    if asked and asked not in FORMATS:
        near = get_close_matches(asked, FORMATS, n=1)
        also = f"; did you mean {near[0]}?" if near else ""
        raise TraceError(f"unknown trace format {asked!r}: one of {', '.join(FORMATS)}{also}")
    name = asked or _by_columns(path) or guess_format(path)
    kind = next((format_ for format_ in FORMATS if format_ == name), None)
    if kind is None:
        raise TraceError(
            f"the format of {path.name} cannot be told from its name or its columns: "
            f"say --format, one of {', '.join(FORMATS)}"
        )
    return kind


def guess_format(path: Path) -> str:
    """The format, from the file's name or its folder's."""
    text = f"{path.parent.name}/{path.name}".lower()
    for format_ in FORMATS:
        if format_ in text:
            return format_
    return next((format_ for hint, format_ in HINTS.items() if hint in text), "")


def tables_beside(path: Path, format_: Format) -> Path | None:
    """The tables that belong to a trace of the collection, if they lie beside it."""
    if format_ not in ("itp", "elasticflow"):
        return None
    name = "throughputs_A100" if format_ == "itp" else "throughputs_T4"
    for folder in (path.parent / name, path.parent.parent / "elasticflow" / name):
        if folder.is_dir():
            return folder
    raise TraceError(f"traces of format {format_} need --throughputs, a folder of MODEL.csv")


def traces_folder() -> Path | None:
    """The folder that LAXITY_TRACES names, there or not; None if it names none."""
    named = os.environ.get(TRACES)
    return Path(named) if named else None


def _places(path: Path) -> Iterator[Path]:
    yield path
    if folder := traces_folder():
        yield folder / path
    yield SAMPLES / path


def _describe_places(path: Path) -> str:
    """The places, in words."""
    if path.is_absolute():
        return "there"
    folder = traces_folder()
    if folder is None:
        under = f"under ${TRACES} (not set)"
    else:
        none = "" if folder.is_dir() else ", which is no folder"
        under = f"under ${TRACES} ({folder}{none})"
    return f"in {Path.cwd()}, {under} and among the samples that ship"


def list_traces() -> list[str]:
    """Traces that could be named, as they would be."""
    return sorted(
        {
            file.relative_to(folder).as_posix()
            for folder in filter(None, (traces_folder(), SAMPLES))
            for file in (*folder.glob("*"), *folder.glob("*/*"))
            if _is_trace(file)
        }
    )


def _is_trace(path: Path) -> bool:
    return path.name.endswith(SUFFIXES) and path.is_file()


def _of_the_same_file(path: Path, known: list[str]) -> list[str]:
    """Those whose file is called alike, in whichever folder."""
    names = {name.rpartition("/")[2]: name for name in known}
    return [names[name] for name in get_close_matches(path.name, names, n=1)]


def _there_is(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"; there is {', '.join(names[:MOST_NAMED])}{more}"


def _by_columns(path: Path) -> str:
    """The format whose column stands in the first lines; "" if none does or they cannot be read."""
    try:
        with open_text(path) as lines:
            head = [next(lines, "") for _ in range(3)]
    except (OSError, EOFError):
        return ""
    columns = {word.strip() for line in head for word in line.replace(",", " ").split()}
    return next((format_ for column, format_ in COLUMNS.items() if column in columns), "")
