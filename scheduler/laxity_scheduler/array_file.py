"""Arrays and a header of JSON in one file: how trained models are kept, never as pickled objects."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

Arrays = Mapping[str, Any]  # NumPy arrays


def save_arrays(path: Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write the file. OSError if that fails."""
    with path.open("wb") as file:
        np.savez_compressed(file, header=json.dumps(header), **arrays)


def collect_arrays(prefix: str, part: Any) -> dict[str, Any]:
    """The fields of a named tuple, each under its own name behind the prefix."""
    return {f"{prefix}.{name}": value for name, value in part._asdict().items()}


def load_arrays(path: Path, kind: str, version: int) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays. ValueError if there is no such file, or of another format or version."""
    try:
        with path.open("rb") as opened:
            if not is_zipfile(opened):
                raise ValueError("it holds no arrays")
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        return read_header(str(arrays.pop("header")), kind, version), arrays
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except (KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ValueError(str(error)) from error


def read_header(text: str, kind: str, version: int) -> dict[str, Any]:
    """ValueError if it is another format's or another version's."""
    header: dict[str, Any] = json.loads(text)
    if (header["format"], header["version"]) != (kind, version):
        raise ValueError(f"it is {header['format']} {header['version']}")
    return header
