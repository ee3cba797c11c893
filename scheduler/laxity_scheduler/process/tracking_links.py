"""Where the runs of a tracking store are looked at, and whether its server answers.

MLflow opens an experiment in its view for language models unless the address says otherwise. Nothing
is imported: MLflow's import takes two seconds.
"""

import contextlib
import json
import sqlite3
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from laxity.http_login import request_to
from laxity.safe_text import without_secrets
from laxity.worker.mlflow_tracking import (
    ANSWER_S,
    EXPERIMENT,
    TRAINING_VIEW,
    require_answer,
    ui_command,
)

UI: Final = "http://127.0.0.1:5000"  # of `mlflow ui`
STORE_VARIABLE: Final = '"$MLFLOW_TRACKING_URI"'  # where the address holds a password
FIRST: Final = "1"  # of a new store, where 0 is Default
_SQLITE: Final = "sqlite:///"


def tracking_lines(uri: str) -> Iterator[str]:
    """The lines that `laxity up` prints about the tracking store at this address."""
    if not uri:
        return
    shown = without_secrets(uri)
    if not uri.startswith(("http://", "https://")):
        yield f"runs: {ui_command(uri if uri == shown else STORE_VARIABLE)}"
        yield f"      {_experiment_url(UI, _id_in_file(uri, EXPERIMENT))}"
        return
    try:
        require_answer(uri)
    except ConnectionError as error:
        yield f"warning: {error}; jobs run, untracked until it does"
        return
    yield f"runs: {_experiment_url(shown.rstrip('/'), _id_on_server(uri.rstrip('/'), EXPERIMENT))}"


def _experiment_url(ui: str, experiment_id: str) -> str:
    place = f"/{experiment_id}/runs" if experiment_id else ""
    return f"{ui}/#/experiments{place}?{TRAINING_VIEW}"


def _id_on_server(uri: str, name: str) -> str:
    """The id of the experiment; "" if there is none yet, or the server wants a login."""
    query = f"{uri}/api/2.0/mlflow/experiments/get-by-name?experiment_name={quote(name)}"
    try:
        answer = urllib.request.urlopen(request_to(query), timeout=ANSWER_S)  # noqa: S310
        with contextlib.closing(answer):
            return str(json.load(answer)["experiment"]["experiment_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _id_in_file(uri: str, name: str) -> str:
    """The id of the experiment in a local store, also of one that is yet to be made."""
    path = Path(uri.removeprefix(_SQLITE))
    if not uri.startswith(_SQLITE):
        return ""
    if not path.exists():
        return FIRST
    query = "SELECT experiment_id FROM experiments WHERE name = ?"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            row = store.execute(query, (name,)).fetchone()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""
