import re

from headrace import errors
from headrace.errors import HeadraceError

_LINE = re.compile(r"(?P<indent>[│├└─ ]*)(?P<name>\w+Error)\b *(?P<module>[a-z]+(?=:|$))?")


def _subclasses(kind: type[HeadraceError]) -> set[type[HeadraceError]]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


def _drawn() -> dict[str, tuple[str, str]]:
    """Returns, for each error in the tree, the error above it and the module that it stands in."""
    drawn: dict[str, tuple[str, str]] = {}
    above: dict[int, str] = {}
    module = ""
    for line in str(errors.__doc__).splitlines():
        match = _LINE.match(line)
        if match:
            depth, module = len(match["indent"]) // 4, match["module"] or module
            above[depth] = match["name"]
            drawn[match["name"]] = (above.get(depth - 1, ""), module)
    return drawn


def test_the_tree_shows_every_error_below_its_base_class_and_with_its_module() -> None:
    actual = {}
    for name in errors.__all__:
        getattr(errors, name)  # imports its module
    for kind in _subclasses(HeadraceError):
        package, _, module = kind.__module__.removesuffix(".errors").rpartition(".")
        is_public = package == "headrace.errors" or kind.__module__.endswith(".errors")
        if is_public and kind.__name__ != "FactsError":
            base = "" if kind is HeadraceError else kind.__mro__[1].__name__
            actual[kind.__name__] = (base.replace("FactsError", "HeadraceError"), module)
    assert _drawn() == actual


def test_every_error_of_the_tree_can_be_imported_from_the_package() -> None:
    assert set(_drawn()) | {"Problem"} == set(errors.__all__)


def test_a_message_is_the_docstring_the_facts_a_sentence_and_the_remedy() -> None:
    unread = errors.RecordsUnreadableError("clicks[3]", 7, "the checksum is wrong.")
    assert str(unread) == (
        "Records can't be read (partition 'clicks[3]', offset 7): the checksum is wrong"
    )
    assert str(errors.TopicMissingError("clicks")) == (
        "The topic does not exist: topic 'clicks'. "
        "Create the declared topics with `headrace apply`."
    )
    rejected = str(errors.EventRejectedError("clicks", "wrong-type", "field 'x' is null"))
    assert "(topic 'clicks', reason 'wrong-type'): field 'x' is null. It was not" in rejected
    assert str(errors.SinkError("lake", "")) == "The sink can't take the batch: sink 'lake'"
