"""Counter-offers in words for somebody who has kubectl alone."""

import math
from collections.abc import Callable, Mapping, Sequence

from laxity import names
from laxity.human_time import count_noun
from laxity.instants import format_rfc3339
from laxity_scheduler.model.job import Offer


def describe_offers(offers: Sequence[Offer]) -> str:
    """Counter-offers as somebody with kubectl alone can take them up: which annotation, what."""
    texts: Mapping[str, Callable[[Offer], str]] = {
        "deadline": lambda offer: (
            f"{names.DEADLINE}: {format_rfc3339(math.ceil(offer.deadline_at))}"
        ),
        "widths": lambda offer: f"{names.WIDTHS}: {','.join(map(str, offer.widths))}",
        "borrow": lambda offer: f"{count_noun(offer.gpus_borrowed, 'more GPU')}",
        "lent": lambda offer: (
            f"{names.CLASS}: soft (with {count_noun(offer.gpus_borrowed, 'borrowed GPU')} it would "
            f"likely end at {format_rfc3339(math.ceil(offer.p50_at))}, in time; a forecast, no promise)"
        ),
        "soft": lambda _: f"{names.CLASS}: soft (a forecast, no promise)",
        "probe": lambda _: "two epochs as a probe first",
    }
    return "would be taken with " + "; or with ".join(
        texts[counter_offer.kind](counter_offer) for counter_offer in offers
    )
