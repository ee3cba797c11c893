"""The end of a service whose listener is away: it waits for nobody who has just failed twice."""

from laxity.backoff import Backoff
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.outbox import Outbox
from tests.observe.test_announcing import Listening
from tests.support.services import wait_until


def test_a_listener_who_is_away_does_not_hold_up_the_end() -> None:
    """Its next try would be in an hour."""
    listener = Listening(away=1_000_000)
    courier = Outbox(listener, backoff=Backoff(first_s=3600.0, longest_s=3600.0))
    for uid in ("u", "v", "w"):
        courier.send(Message({"uid": uid}, ("promised",)))
    wait_until(lambda: listener.away < 999_999, "two tries")
    courier.close(at_most_s=3600.0)
    assert listener.events == []
    assert courier.waiting == 3
