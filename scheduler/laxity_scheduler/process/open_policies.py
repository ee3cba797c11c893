"""Opens the policy of a service, and follows its alias in MLflow's registry."""

from functools import partial
from typing import Final

from laxity_scheduler.notifications.poller import Poller
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.registry import UnknownPolicyError
from laxity_scheduler.service.learned_models import (
    LearnedModel,
    LearnedModels,
    ModelAwayError,
    ModelRefusedError,
    model_address,
)
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.store.store import Store

ALIAS_S: Final = 15.0  # how often it is asked what an alias names


def models_of(settings: Settings, store: Store | None = None) -> LearnedModels:
    """Where a service with these settings finds models, and keeps them."""
    return LearnedModels(settings.tracking_url, store)


def find_policy(name: str, models: LearnedModels | None = None) -> Policy:
    """The policy of this name; SettingsError lists the names that exist, or says what is away."""
    try:
        return (models or LearnedModels()).find_policy(name)
    except (UnknownPolicyError, ModelAwayError, ModelRefusedError) as error:
        raise SettingsError(str(error)) from error


def find_usable_policy(name: str, models: LearnedModels) -> Policy:
    """`find_policy`; SettingsError also where another rule would decide, as its file is refused."""
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
    try:
        model = models.read(name)
    except ModelAwayError as error:
        model = models.read_kept(name, str(error)) or LearnedModel(name, refusal=str(error))
    first = name if model is None else model.fallback_policy
    in_force = PolicyInForce(first, find_policy(first, models), store)
    if model is not None:
        in_force.offer(model)
    return in_force


def alias_poller(settings: Settings, policies: PolicyInForce, store: Store) -> Poller | None:
    """Puts in force what an alias names now; None where the policy is not one of MLflow's registry.

    While MLflow is away what decides goes on.
    """
    if not model_address(settings.policy):
        return None
    read = partial(read_alias, settings, policies, store)
    return Poller(read, due=lambda: True, interval_s=ALIAS_S, source="MLflow's registry")


def read_alias(settings: Settings, policies: PolicyInForce, store: Store | None = None) -> int:
    """Ask once what the alias names, and offer it; ModelAwayError if that fails."""
    model = models_of(settings, store).read(settings.policy)
    if model is not None:
        policies.offer(model)
    return 1
