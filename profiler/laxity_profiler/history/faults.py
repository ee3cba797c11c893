"""Errors about single runs: all others are served. A service hands in its own door for them."""

import logging
from collections.abc import Callable
from typing import Final

LOG: Final = logging.getLogger(__name__)
OnFault = Callable[[str, str, Exception], None]  # the stage, the run's uid, what was raised


def log_fault(stage: str, uid: str, error: Exception) -> None:
    """Log it with its traceback, where there is no service that counts."""
    LOG.error("%s of %s: %s", stage, uid, error, exc_info=error)
