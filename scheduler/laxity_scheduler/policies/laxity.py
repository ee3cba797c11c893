"""Our own ladder policy: least remaining GPU-time first, promises at a price.

Who needs the least GPU-time goes first, so most deadlines are met when GPUs are scarce. A promise
is given when it fits behind all earlier ones and its plan, each GPU-second weighed by how full its
slot is, costs no more than a share of what newcomers usually need (algorithms.md 10.1). Who is not
promised runs on what is left and may still be in time. Where nobody is promised, deadlines say who
goes first whenever more jobs can be in time that way: all of them, where GPUs are not scarce.
"""

from typing import Final

from laxity_scheduler.shares.rule import ShareRule, policy_of

RULE: Final = ShareRule("laxity", order="gpu_time", admission="priced", replans=8)
decide = policy_of(RULE)
