"""Opens the policies of a service: the one in force, its shadow, and who follows aliases of both."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from laxity_scheduler.engine import Policy
from laxity_scheduler.kept_models import ModelRefusedError
from laxity_scheduler.notifications.poller import Poller
from laxity_scheduler.policies.registry import UnknownPolicyError, find
from laxity_scheduler.policy_models import (
    LearnedModel,
    LearnedModels,
    ModelAddressError,
    ModelAwayError,
    model_address,
)
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.service.shadow import Shadow
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.stored_models import StoredModels

LOG: Final = logging.getLogger(__name__)
ALIAS_S: Final = 15.0  # how often it is asked what an alias names


def models_of(settings: Settings, store: Store | None = None) -> LearnedModels:
    """Where a service with these settings finds models, and keeps them."""
    shelf = None if store is None else StoredModels(store)
    return LearnedModels(settings.home / "policies", settings.tracking_url, shelf)


def find_policy(name: str, models: LearnedModels | None = None) -> Policy:
    """The policy of this name; SettingsError lists the names that exist, or says what is away."""
    try:
        return find(models.policy_name(name) if models else name).policy()
    except (UnknownPolicyError, ModelAwayError, ModelRefusedError) as error:
        raise SettingsError(str(error)) from error


def find_usable_policy(name: str, models: LearnedModels) -> Policy:
    """The same; SettingsError also where another rule would decide, as its file is refused."""
    try:
        model = models.read(name)
    except ModelAwayError as error:
        raise SettingsError(str(error)) from error
    if model is not None and model.refusal:
        raise SettingsError(f"{name} cannot be used: {model.refusal}")
    return find_policy(name, models)


def open_policy(settings: Settings, store: Store) -> PolicyInForce:
    """The policy of the settings; a learned one is guarded by its teacher, who decides where it is away."""
    models, name = models_of(settings, store), settings.policy
    finder = partial(find_policy, models=models)
    try:
        model = models.read(name)
    except ModelAwayError as error:
        model = models.read_kept(name, str(error)) or LearnedModel(name, refusal=str(error))
    first = name if model is None else model.fallback_policy
    in_force = PolicyInForce(first, finder(first), find_policy=finder, store=store)
    if model is not None:
        in_force.offer(model)
    return in_force


def open_shadow(settings: Settings, store: Store) -> Shadow | None:
    """The shadow of the settings, if they name one. SettingsError if it names no policy.

    A learned one that cannot be read, or is refused, shadows nothing until it can be.
    """
    name = settings.shadow
    if not name:
        return None
    models = models_of(settings, store)
    try:
        model = models.read(name)
    except ModelAddressError as error:
        raise SettingsError(str(error)) from error
    except ModelAwayError as error:
        model = models.read_kept(name, str(error))
        model = model or LearnedModel(name, refusal=str(error))
    if model is None:
        return Shadow(name, find_policy(name, models), store)
    if model.refusal:
        until = " until it can be read" if model_address(name) else ""  # a file: at the next start
        LOG.warning("%s shadows nothing%s: %s", name, until, model.refusal)
        return Shadow(name, None, store, failure=model.refusal)
    if model.stale:
        LOG.warning("%s decides in shadow: %s", model.name, model.stale)
    return Shadow(model.name, find_policy(model.name, models), store)


@dataclass(slots=True)
class AliasFollower:
    """Puts in force what an alias names now. While MLflow is away what decides goes on."""

    settings: Settings
    policies: PolicyInForce
    shadow: Shadow | None
    store: Store | None = None
    _shadow_failure: str = ""

    def read(self) -> int:
        """Ask once; ModelAwayError if that fails."""
        questions = 0
        if self.shadow is not None and model_address(self.settings.shadow):
            self._read_shadow(self.shadow)
            questions += 1
        if model_address(self.settings.policy):
            model = models_of(self.settings, self.store).read(self.settings.policy)
            if model is not None:
                self.policies.offer(model)
            questions += 1
        return questions

    def _read_shadow(self, shadow: Shadow) -> None:
        """One that cannot be read leaves the shadow as it is, and says why."""
        models = models_of(self.settings, self.store)
        try:
            model = models.read(self.settings.shadow)
        except ModelAwayError as error:
            self._note_failure(shadow, str(error))
            return
        if model is not None and model.refusal:
            self._note_failure(shadow, model.refusal)
            return
        self._shadow_failure = ""
        if model is not None and model.name != shadow.name:
            shadow.replace_policy(model.name, find_policy(model.name, models))

    def _note_failure(self, shadow: Shadow, failure: str) -> None:
        """Log it once."""
        if failure not in (self._shadow_failure, shadow.failure):
            LOG.warning("%s cannot be read, it is asked again: %s", self.settings.shadow, failure)
        self._shadow_failure = failure
        if shadow.decide is None:
            shadow.failure = failure


def alias_poller(
    settings: Settings,
    policies: PolicyInForce,
    shadow: Shadow | None,
    store: Store,
    *,
    due: Callable[[], bool],
) -> Poller | None:
    """None where no policy is one of MLflow's registry."""
    if not (model_address(settings.policy) or model_address(settings.shadow)):
        return None
    follower = AliasFollower(settings, policies, shadow, store)
    return Poller(follower.read, due=due, interval_s=ALIAS_S, source="MLflow's registry")
