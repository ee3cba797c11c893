"""What a training in a work pool's pod says of itself last: a word in a file, read by `laxity.pool`."""

from typing import Final

USAGE: Final = 2
ENV_WORD: Final = "LAXITY_LAST_WORD"  # a file: what the training says of itself last
TRAINING: Final = "training"  # it has begun, and has not come to an end
FAILED: Final = "failed"
