"""Dead letters for tests that read them."""

from headrace.kafka.dead_letters.writer import dead_letter_records
from headrace.kafka.write.failures import raise_first
from headrace.kafka.write.sending import send_each


def write_dead_letters(config, letters, writer, version):
    """Writes ``letters`` whether they are there already or not."""
    records = dead_letter_records(config, letters, writer, version)
    raise_first(send_each(config, records).values())
