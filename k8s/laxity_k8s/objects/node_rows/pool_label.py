"""The label of a node that says whose it is: training's (the default), inference's, or lent."""

from typing import Final

from laxity import names

POOL: Final = f"{names.DOMAIN}/pool"  # training, inference or loaned
