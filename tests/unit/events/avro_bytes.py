"""Values of Avro, byte by byte."""


def long(number: int) -> bytes:
    """Returns an integer as Avro writes it: zigzag, seven bits a byte."""
    number = (number << 1) ^ (number >> 63)
    encoded = b""
    while number > 0x7F:
        encoded, number = encoded + bytes([number & 0x7F | 0x80]), number >> 7
    return encoded + bytes([number])
