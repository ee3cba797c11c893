"""Three contracts for import-linter: packages have an order, a heavy library has one door, the core is pure.

import-linter's own contracts need a section for each package, and every module that they name to
exist. These take a row for each package or library; doors and pure modules are patterns, so that all
of `laxity.flow` is one door, and a new policy is pure by itself.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import cast

import grimp
from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

OTHERS = "..."  # at the end of an order: more modules are there, which may import any


def _strings(field: object) -> list[str]:
    """What the contract's text says: import-linter puts values where the class has fields."""
    return cast("list[str]", field)


def _rows(field: object) -> Iterator[tuple[str, str]]:
    """Rows of `NAME: TEXT`; a text goes on up to the next name."""
    text = " ".join(_strings(field))
    return ((row[1], row[2].strip()) for row in re.finditer(r"([\w.]+):([^:]*?)(?=\S+:|$)", text))


def _matches(module: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


class _ListingContract(Contract):
    """A contract that is broken where `find_problems` yields a line."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """All problems of this graph of imports."""
        found = list(self.find_problems(graph))
        return ContractCheck(kept=not found, metadata={"found": found})

    def find_problems(self, graph: ImportGraph) -> Iterator[str]:
        """A line for each problem."""
        raise NotImplementedError

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each."""
        for line in check.metadata["found"]:
            output.print_error(line)


class OrderContract(_ListingContract):
    """`orders` has a row `PACKAGE: a > b c > d` for each package; `.` orders the packages themselves.

    `a` may import all others, also through others; `b` and `c` may import each other and `d`.
    Every module of the package stands in its order, unless that ends with `...`.
    """

    type_name = "order"

    orders = fields.ListField(subfield=fields.StringField())

    def find_problems(self, graph: ImportGraph) -> Iterator[str]:
        for package, text in _rows(self.orders):
            layers = [layer.split() for layer in text.split(">") if layer.strip() != OTHERS]
            named = {name for layer in layers for name in layer}
            prefix = "" if package == "." else f"{package}."
            there = _children_of(graph, package, prefix)
            yield from (
                f"{prefix}{name} stands in an order and is not there" for name in named - there
            )
            if not text.endswith(OTHERS):
                yield from (f"{prefix}{name} stands in no order" for name in sorted(there - named))
            for illegal in graph.find_illegal_dependencies_for_layers(
                layers=[
                    grimp.Layer(
                        *(prefix + name for name in layer if name in there), independent=False
                    )
                    for layer in layers
                    if there.intersection(layer)
                ]
            ):
                for route in illegal.routes:
                    yield " -> ".join((min(route.heads), *route.middle, min(route.tails)))


def _children_of(graph: ImportGraph, package: str, prefix: str) -> set[str]:
    if package == ".":
        return {m for m in graph.modules if "." not in m and not graph.is_module_squashed(m)}
    return {child.removeprefix(prefix) for child in graph.find_children(package)}


class DoorContract(_ListingContract):
    """`doors` has a row `LIBRARY: PATTERN...` for each: modules that match may import it, no others."""

    type_name = "door"

    doors = fields.ListField(subfield=fields.StringField())

    def find_problems(self, graph: ImportGraph) -> Iterator[str]:
        for library, patterns in _rows(self.doors):
            doors = patterns.split()
            if library not in graph.modules:
                continue
            for module in sorted(graph.find_modules_that_directly_import(library)):
                if not _matches(module, doors):
                    for place in graph.get_import_details(importer=module, imported=library):
                        line = place["line_number"]
                        yield f"{module}, line {line}, imports {library}; only {doors} may"


class PureContract(_ListingContract):
    """Modules that match `modules` reach none of `libraries`, directly or through others."""

    type_name = "pure"

    modules = fields.ListField(subfield=fields.StringField())
    libraries = fields.ListField(subfield=fields.StringField())

    def find_problems(self, graph: ImportGraph) -> Iterator[str]:
        """The shortest way from each such module to each such library."""
        pure = " ".join(_strings(self.modules)).split()
        for module in sorted(graph.modules):
            for library in _strings(self.libraries) if _matches(module, pure) else ():
                if library in graph.modules:
                    chain = graph.find_shortest_chain(importer=module, imported=library)
                    if chain:
                        yield " -> ".join(chain)
