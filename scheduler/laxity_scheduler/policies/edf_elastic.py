"""Earliest deadline first, elastic: each job on the fewest GPUs that meet its deadline.

The variant "minimum" of algorithms 7.2: no admission, nothing kept for later, what is left grows
the jobs whose GPU-time grows least.
"""

from typing import Final

from laxity_scheduler.shares import ShareRule, policy_of

RULE: Final = ShareRule("edf_elastic", order="deadline", reserves=False)
decide = policy_of(RULE)
