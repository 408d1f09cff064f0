import pytest

from headrace.model.partition_value import unsafe_partition_value


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "shoes",
        "a b",
        "%2e%2e",
        "a=b",
        "...",
        "żółć",
        "😀",
        "a" * 100,
        "é" * 50,
        "a.b",
        "-",
    ],
)
def test_an_ordinary_text_can_name_a_directory(value):
    assert unsafe_partition_value(value) is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("../../x", "'/'"),
        ("a\\b", "separates directories"),
        (".", "reserved"),
        ("..", "reserved"),
        ("__unsafe__", "reserved"),
        ("__HIVE_DEFAULT_PARTITION__", "reserved"),
        ("a" * 101, "101 bytes"),
        ("é" * 51, "102 bytes"),
        ("c" * 300, "300 bytes"),
        ("a\x00b", "U+0000"),
        ("a\nb", "U+000A"),
        ("a\x7f", "U+007F"),
        ("a\x85", "U+0085"),
    ],
)
def test_an_unsafe_value_is_told_with_its_reason(value, why):
    assert why in (unsafe_partition_value(value) or "")
