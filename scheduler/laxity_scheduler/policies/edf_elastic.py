"""Earliest deadline first, elastic: each job on the fewest GPUs that meet its deadline.

The variant "minimum" of algorithms.md 7.2: no admission, nothing kept for later, what is left grows
the jobs whose GPU-time grows least.

Promises may be put in front of it: who finds its least share free now is promised, but what it was
promised is not kept for it, since this rule plans no time (`reserves`).
"""

from typing import Final

from laxity_scheduler.shares.rule import ShareRule, policy_of

RULE: Final = ShareRule("edf_elastic", reserves=False)
decide = policy_of(RULE)
