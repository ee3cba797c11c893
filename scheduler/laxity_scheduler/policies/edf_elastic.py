"""Earliest deadline first, elastic: each job on the fewest GPUs that meet its deadline.

The variant "minimum" of algorithms.md 7.2: no admission, nothing kept for later, what is left grows
the jobs whose GPU-time grows least.

Promises may be put in front of it, but a price makes no difference: it weighs how full the slots of
a plan over time will be, and this rule plans no time (`reserves`). Who finds its least share free
now is promised, greedily or "at a price", and what it was promised is not kept for it.
"""

from typing import Final

from laxity_scheduler.shares.rule import ShareRule, policy_of

RULE: Final = ShareRule("edf_elastic", order="deadline", reserves=False)
decide = policy_of(RULE)
