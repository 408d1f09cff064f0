"""Where a mirrored record says that it comes from."""

from headrace.kafka.origin import ORIGIN, Origin, origin_prefix, origins


def test_an_origin_is_read_as_it_was_written():
    value = origin_prefix("warsaw", "clicks", 3) + b"88120"
    assert value == b"warsaw/clicks/3/88120"
    assert origins([("h", b"x"), (ORIGIN, value)]) == [Origin("warsaw", "clicks", 3, 88_120)]


def test_each_link_that_a_record_came_over_is_known_in_order():
    headers = [(ORIGIN, b"warsaw/clicks/3/1"), (ORIGIN, b"central/warsaw.clicks/3/2")]
    assert [origin.site for origin in origins(headers)] == ["warsaw", "central"]


def test_headers_of_others_are_left_out():
    others = [
        b"",
        None,
        b"a/b/c/d",
        b"a/b/1/2/3",
        b"/b/1/2",
        b"a/b/1/x",
        b"a/b/1/2 ",
        b"\xff/b/1/2",
    ]
    assert origins([(ORIGIN, value) for value in others]) == []
