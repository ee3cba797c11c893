"""The service's log on stderr: lines of text for people, or a JSON object a line for collectors.

All loggers, those of libraries too, write in the same form, without logins in addresses. The level
applies to laxity's own loggers. Libraries stay at INFO or above: at DEBUG some of them print
requests with their tokens.
"""

import json
import logging
import threading
from typing import Final, Literal

from laxity.instants import format_rfc3339
from laxity.safe_text import without_secrets

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]
TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PACKAGES: Final = ("laxity", "laxity_profiler", "laxity_scheduler", "laxity_k8s")
NOISY: Final = ("alembic", "mlflow", "httpx")
LOG: Final = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message; job and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": format_rfc3339(record.created, "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if job := getattr(record, "job", ""):
            line["job"] = job
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: without_secrets(str(text)) for name, text in line.items()})


class TextFormatter(logging.Formatter):
    """A line for people, and a traceback below it where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def log_to_stderr(log_format: str = "text", level: str = "info") -> None:
    """Configure all loggers of this process."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(TEXT))
    logging.basicConfig(handlers=[handler], force=True)
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(own, logging.INFO))
    for name in PACKAGES:
        logging.getLogger(name).setLevel(own)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(own, logging.WARNING))
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_uncaught


def _log_uncaught(raised: threading.ExceptHookArgs) -> None:
    """A thread ended by an exception: its traceback in the form of all other lines."""
    name = raised.thread.name if raised.thread else "a thread"
    error = raised.exc_value
    LOG.critical("%s ended: %r", name, error, exc_info=error)
