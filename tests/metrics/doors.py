"""Two contracts for import-linter: a heavy library has one door, and the core stays pure.

import-linter's own contracts need every module that they name to exist. These take patterns, so
that all of `laxity.flow` is one door, and a new policy is pure by itself.
"""

from fnmatch import fnmatchcase
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def _strings(field: object) -> list[str]:
    """What the contract's text says: import-linter puts values where the class has fields."""
    return cast("list[str]", field)


def _matches(module: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


class DoorContract(Contract):
    """Modules of the packages `within` import `library` only if they match one of `doors`."""

    type_name = "door"

    library = fields.StringField()
    within = fields.ListField(subfield=fields.StringField())
    doors = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Direct imports of the library by modules that are no door."""
        library, within, doors = str(self.library), _strings(self.within), _strings(self.doors)
        importers = (
            graph.find_modules_that_directly_import(library) if library in graph.modules else set()
        )
        found = [
            f"{module}, line {place['line_number']}, imports {library}; only {doors} may"
            for module in sorted(importers)
            if module.split(".")[0] in within and not _matches(module, doors)
            for place in graph.get_import_details(importer=module, imported=library)
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each."""
        for line in check.metadata["found"]:
            output.print_error(line)


class PureContract(Contract):
    """Modules that match `modules` reach none of `libraries`, directly or through others."""

    type_name = "pure"

    modules = fields.ListField(subfield=fields.StringField())
    libraries = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """The shortest way from each such module to each such library."""
        pure, libraries = _strings(self.modules), _strings(self.libraries)
        chains = (
            graph.find_shortest_chain(importer=module, imported=library)
            for module in sorted(graph.modules)
            if _matches(module, pure)
            for library in libraries
            if library in graph.modules
        )
        found = [" -> ".join(chain) for chain in chains if chain]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each."""
        for line in check.metadata["found"]:
            output.print_error(line)
