"""What the log says once of code that trains otherwise than it seems to."""

import math
import sys
from collections.abc import Mapping
from typing import Final

from laxity.stderr import say
from laxity.worker.training_state import TrainingState

LONE: Final = "each trains a model of its own, and worker 0's counts"


class Notices:
    """Each notice is given once in a process."""

    def __init__(self, course: TrainingState) -> None:
        self.combines = False  # the workers exchange something, or were warned that they do not
        self._course = course
        self._odd = False

    def lone_models(self) -> None:
        """Workers that exchange nothing train several models."""
        if self.combines or self._course.width == 1:
            return
        self.combines = True
        distributed = sys.modules.get("torch.distributed")
        has_group = distributed is not None and distributed.is_initialized()
        if not (has_group or self._course.when_formed or self._course.rank):
            width = self._course.width
            say(f"{width} workers ended an epoch without training.average or DDP: {LONE}")

    def odd_figures(self, figures: Mapping[str, float], epoch: int) -> None:
        """NaN and infinity are not logged."""
        odd = [name for name, value in figures.items() if not math.isfinite(value)]
        if odd and not self._odd:
            self._odd = True
            say(f"{odd[0]} is {figures[odd[0]]} in epoch {epoch}: such values are not logged")
