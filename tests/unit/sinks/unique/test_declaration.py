"""The declaration of what is unique."""

from headrace import Unique


def test_a_list_and_a_tuple_of_columns_are_one_declaration():
    listed = Unique(by=["id"], ignore=["received"])
    assert listed == Unique(by=("id",), ignore=("received",))
    assert hash(listed) == hash(Unique(by=("id",), ignore=("received",)))
