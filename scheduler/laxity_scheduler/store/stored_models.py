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

    What the store cannot do is logged: models are in MLflow and in the service's folder as well.
    """

    store: Store

    def load_model(self, version: str) -> bytes | None:
        """The bytes of this version; None where there are none."""
        try:
            row = self.store.load_row(PolicyModelRow, version)
        except StoreError as error:
            LOG.warning("the store cannot say whether it has %s: %s", version, error)
            return None
        return None if row is None else row.body

    def load_alias(self, alias: str) -> str | None:
        """The version that this alias named last; None where that is not known."""
        try:
            row = self.store.load_row(PolicyAliasRow, alias)
        except StoreError as error:
            LOG.warning("the store cannot say what %s named last: %s", alias, error)
            return None
        return None if row is None else row.version

    def keep(self, version: str, body: bytes, alias: str = "") -> None:
        """Write what is not there yet."""
        try:
            rows: list[PolicyModelRow | PolicyAliasRow] = []
            if self.store.load_row(PolicyModelRow, version) is None:
                rows.append(PolicyModelRow(version=version, body=body))
            last = self.store.load_row(PolicyAliasRow, alias) if alias else None
            if alias and (last is None or last.version != version):
                rows.append(PolicyAliasRow(alias=alias, version=version))
            if rows:
                self.store.replace_rows(rows)
        except StoreError as error:
            LOG.warning("%s is not in the store yet: %s", version, error)
