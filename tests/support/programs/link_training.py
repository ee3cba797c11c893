"""What each link of a chain trains: an epoch is a line that says who trained it, and when.

These lines are all of its state, so it keeps that itself.

link_training.py EPOCHS SECONDS_PER_EPOCH
"""

import os
import sys
import time
from pathlib import Path

from laxity import Training

lines = Path(os.environ["LAXITY_CHAIN_FOLDER"]) / "epochs"
for epoch in Training(int(sys.argv[1]), resumes=True).epochs():
    begun_at = time.time()
    time.sleep(float(sys.argv[2]))
    with lines.open("a") as file:
        print(epoch, os.environ["LAXITY_CHAIN_LINK"], begun_at, time.time(), file=file)
