"""The contracts of `.importlinter`: what breaks them."""

import grimp
import pytest

from tests.metrics.contracts import DoorContract, OrderContract

MODULES = ("shop", "shop.till", "shop.shelf", "shop.crate", "store", "store.door")


def graph(*imports: tuple[str, str]) -> grimp.ImportGraph:
    made = grimp.ImportGraph()
    for module in MODULES:
        made.add_module(module)
    made.add_module("torch", is_squashed=True)
    for importer, imported in imports:
        made.add_import(
            importer=importer, imported=imported, line_number=7, line_contents=f"import {imported}"
        )
    return made


def problems_of_order(made: grimp.ImportGraph, *orders: str) -> list[str]:
    contract = OrderContract("order", {}, {"orders": list(orders)})
    return list(contract.find_problems(made))


@pytest.mark.parametrize(
    ("orders", "problems"),
    [
        (["shop: till > shelf crate"], []),
        (["shop: till > shelf", "crate", "store: door"], []),
        (["shop: shelf crate > till"], ["shop.till -> store.door -> shop.crate"]),
        (["shop: till > shelf > crate"], ["shop.crate -> shop.shelf"]),
        (["shop: till > shelf"], ["shop.crate stands in no order"]),
        (["shop: till > shelf > ..."], []),
        (["shop: till > shelf crate > lamp"], ["shop.lamp stands in an order and is not there"]),
        ([".: shop > store"], ["store.door -> shop.crate"]),
        ([".: shop"], ["store stands in no order"]),
    ],
    ids=[
        "kept", "in two lines", "through another package", "the wrong way", "not named",
        "others are free", "gone", "packages", "a package not named",
    ],
)  # fmt: skip
def test_an_order_names_each_import_against_it_and_each_module_outside(
    orders: list[str], problems: list[str]
) -> None:
    made = graph(
        ("shop.till", "store.door"), ("store.door", "shop.crate"), ("shop.crate", "shop.shelf")
    )
    assert problems_of_order(made, *orders) == problems


def test_a_library_is_imported_by_its_doors_alone() -> None:
    contract = DoorContract("door", {}, {"doors": ["torch: shop.t*", "absent: shop.crate"]})
    made = graph(("shop.till", "torch"), ("shop.crate", "torch"))
    assert list(contract.find_problems(made)) == [
        "shop.crate, line 7, imports torch; only ['shop.t*'] may"
    ]
