"""What the exit code of a worker that failed says of another start."""

from typing import Final

FINAL_CODES: Final = (1, 2)  # it would fail, too; 2: the worker cannot even be started
EXIT_RAISED: Final = 70  # the training function raised: it may get further
