"""A certificate of the servers at 127.0.0.1, which is its own authority."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

STORE_PASSWORD = "changeit"
_ADDRESS = "127.0.0.1"


def make_certificate(folder: Path) -> None:
    """Writes ``ca.pem``, ``key.pem``, and both as ``server.p12`` for servers on the JVM."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _ADDRESS)])
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(_ADDRESS))])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(addresses, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    (folder / "server.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", key, certificate, None, encryption)
    )
