"""ElasticFlow (ASPLOS 2023): each promised job gets its minimum satisfactory share, then growth.

A newcomer is promised if, in order of deadline, everybody's least share still fits before its
deadline; else it is refused. What is left grows the job whose GPU-time grows least per GPU, since
returns diminish; the released code prefers the largest growth, which is the rule's switch `surplus`.

Where this differs from the release: slots grow with time instead of 60 s each; plans are filled from
now on, not backwards from the deadline; a change's cost is part of a plan; nothing migrates.
"""

from typing import Final

from laxity_scheduler.shares.rule import ShareRule, policy_of

RULE: Final = ShareRule("elasticflow", admission="greedy", drops=True)
decide = policy_of(RULE)
