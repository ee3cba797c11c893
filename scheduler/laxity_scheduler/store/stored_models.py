"""Learned policies of MLflow's registry in the service's store: every replica and every new pod has it."""

import logging
from dataclasses import dataclass
from typing import Final

from laxity_scheduler.store.store import Store, StoreError
from laxity_scheduler.store.tables import PolicyAliasRow, PolicyModelRow

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredModels:
    """Files by `models:/NAME/VERSION`, and which of them `models:/NAME@ALIAS` named last.

    `origin` names the MLflow that they are of, and stands before both in a row's key; rows of an
    earlier laxity have none. What the store cannot do is logged: models are in MLflow and in the
    service's folder as well.
    """

    store: Store

    def load_models(self, version: str, origin: str) -> list[bytes]:
        """The bytes of this version, one at most; of every MLflow without an origin."""
        try:
            if not origin:
                return self.store.load_policy_models(version)
            row = self.store.load_row(PolicyModelRow, _key(origin, version))
        except StoreError as error:
            LOG.warning("the store cannot say whether it has %s: %s", version, error)
            return []
        return [] if row is None else [row.body]

    def load_alias(self, alias: str, origin: str) -> str:
        """The version that this alias named last; "" where that is not known."""
        try:
            row = self.store.load_row(PolicyAliasRow, _key(origin, alias))
        except StoreError as error:
            LOG.warning("the store cannot say what %s named last: %s", alias, error)
            return ""
        return "" if row is None else row.version

    def keep(self, version: str, body: bytes, origin: str, *, alias: str = "") -> None:
        """Write what is not there yet, and what is there otherwise."""
        try:
            rows: list[PolicyModelRow | PolicyAliasRow] = []
            if self.load_models(version, origin) != [body]:
                rows.append(PolicyModelRow(version=_key(origin, version), body=body))
            if alias and self.load_alias(alias, origin) != version:
                rows.append(PolicyAliasRow(alias=_key(origin, alias), version=version))
            if rows:
                self.store.replace_rows(rows)
        except StoreError as error:
            LOG.warning("%s is not in the store yet: %s", version, error)


def _key(origin: str, name: str) -> str:
    return f"{origin} {name}"
