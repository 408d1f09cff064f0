"""Which records a mirror copies: Spark's columns against the decision of its instances."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.kafka.origin import ORIGIN, origins
from headrace.links.mirror.filter import MirrorFilter
from headrace.spark.header_columns import headers_or_empty, last_origin

SITES = ("waw", "central", "par", "waw-2", "WAW", "")
NAMES = st.sampled_from((ORIGIN, ORIGIN.upper(), "other"))
ORIGINS = st.builds(
    lambda *parts, end: ("/".join(parts) + end).encode(),
    st.sampled_from(SITES),
    st.sampled_from(("clicks", "a.b_c-d", "", "a/b")),
    st.sampled_from(("0", "7", "00", "12345678901", "-1", "٣")),
    st.sampled_from(("0", "7", "9223372036854775807", "12345678901234567890", "")),
    end=st.sampled_from(("", "", "", "\n", " ", "/")),
)
HEADERS = st.none() | st.lists(
    st.tuples(NAMES, st.none() | ORIGINS | st.binary(max_size=4)), max_size=4
)
SCHEMA = "partition int, headers array<struct<key:string,value:binary>>"
LISTS = st.lists(HEADERS, min_size=60, max_size=60)
SOME = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def values(spark, made, column):
    from pyspark.sql import functions as f

    frame = spark.createDataFrame([(7, headers) for headers in made], SCHEMA).coalesce(1)
    return [row[0] for row in frame.select(column(headers_or_empty(f.col("headers")))).collect()]


@SOME
@given(made=LISTS)
def test_the_ledger_counts_as_copied_what_an_instance_copies(spark, made):
    rule = MirrorFilter("waw", "central")
    expected = [rule.counter_of(headers or ()) == "records" for headers in made]
    assert values(spark, made, rule.is_copied_column) == expected


@SOME
@given(made=LISTS)
def test_the_last_origin_in_columns_is_that_of_instances(spark, made):
    def offset_of(headers):
        known = origins(headers or ())[-1:]
        # Of offsets that no log can have, columns say that the record has none.
        return [o.offset for o in known if o.offset < 2**63 and is_source(o)][:1]

    def is_source(origin):
        return (origin.site, origin.topic, origin.partition) == ("waw", "clicks", 7)

    expected = [next(iter(offset_of(headers)), None) for headers in made]
    assert values(spark, made, lambda h: last_origin(h, "waw", "clicks")) == expected
