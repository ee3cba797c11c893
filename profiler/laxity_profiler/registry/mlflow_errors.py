"""Whether an MLflow answers, and what its failures become: one error with its address."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from laxity.http_login import request_to
from laxity.safe_text import without_secrets
from laxity.worker.mlflow_tracking import import_mlflow, proxy_text
from laxity_profiler.history.history_database import DATABASE_ERRORS

SQLITE: Final = "sqlite:///"
ANSWER_S: Final = 5.0
ABSENT: Final = "RESOURCE_DOES_NOT_EXIST"


class MlflowAwayError(RuntimeError):
    """MLflow does not answer, or does not do what it was asked."""


class NotInMlflowError(MlflowAwayError):
    """MLflow answers, and has no such model, version or alias."""


@contextmanager
def translate_mlflow_errors(uri: str) -> Iterator[None]:
    """What MLflow and its stores raise becomes one error with the address in it."""
    import_mlflow()
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError, *DATABASE_ERRORS) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        absent = getattr(error, "error_code", "") == ABSENT
        kind = NotInMlflowError if absent else MlflowAwayError
        raise kind(without_secrets(f"MLflow at {uri}: {first_line}", uri)[:400]) from error


def check_answers(uri: str) -> None:
    """MlflowAwayError at once if nobody listens there: MLflow itself would try for minutes."""
    if uri.startswith(("http://", "https://")):
        try:
            with urlopen(request_to(f"{uri.rstrip('/')}/health"), timeout=ANSWER_S):  # noqa: S310
                return
        except HTTPError as error:
            if error.code < 500:  # some proxies hide /health: somebody is there
                return
            message = without_secrets(f"MLflow at {uri} answers {error.code}")
            raise MlflowAwayError(message) from error
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            message = f"MLflow at {uri} does not answer{proxy_text(uri)}: {reason}"
            raise MlflowAwayError(without_secrets(message, uri)) from error
    if uri.startswith(SQLITE):
        folder = Path(uri.removeprefix(SQLITE)).parent
        if not folder.is_dir():
            raise MlflowAwayError(f"MLflow at {uri} cannot be: there is no folder {folder}")
