"""
TLS on loopback: an authority of this user's own, made once, and a certificate for each start of the server.

The authority may speak for this machine's loopback alone (name constraints): whoever steals its key can play no other
host. Clients know it by a file that also has the authorities that they would trust without it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import os
import ssl
from importlib import import_module
from typing import TYPE_CHECKING

from drumline.contract.folder import write_whole
from drumline.contract.rank_variables import TRUST
from drumline.rest.endpoint import find_trust, folder

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY = "authority.pem"
_AUTHORITY_KEY = "authority-key.pem"
_SERVER = "server.pem"
_YEARS = 10
_DAY = datetime.timedelta(days=1)
_HOSTS = ("127.0.0.1", "::1")
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Of Debian, Red Hat, SUSE, Alpine."""


def make_context() -> ssl.SSLContext:
    """Return the server's context, with a certificate that is made now. Raises OSError."""
    authority, authority_key = _get_authority()
    key = _make_key()
    certificate = _sign(authority.subject, authority_key, key, is_authority=False)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    path = os.path.join(folder(), _SERVER)
    write_whole(path, _to_text(key) + _to_text(certificate))
    context.load_cert_chain(path)
    return context


def write_bundle() -> str:
    """
    Write the authorities that clients are to trust, ours and those of before, and return the path. Raises OSError.

    Those of before: of ``REQUESTS_CA_BUNDLE`` or ``SSL_CERT_FILE``, else the system's, else certifi's.
    """
    before = ""
    for place in (*map(find_trust, TRUST), *_SYSTEM_BUNDLES):
        if place and os.path.isfile(place):
            with open(place, encoding="utf-8", errors="replace") as file:
                before = file.read()
            break
    else:
        with contextlib.suppress(ImportError):
            before = import_module("certifi").contents()
    # Two shells may have had two of them.
    digest = hashlib.sha256(before.encode()).hexdigest()[:8]
    path = os.path.join(folder(), f"ca-bundle-{digest}.pem")
    write_whole(path, _to_text(_get_authority()[0]) + before)
    return path


def _get_authority() -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    """Return the authority, made anew where there is none, or none that is good for another month."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    with contextlib.suppress(OSError, ValueError, TypeError):
        with open(os.path.join(folder(), _AUTHORITY), "rb") as file:
            certificate = x509.load_pem_x509_certificate(file.read())
        with open(os.path.join(folder(), _AUTHORITY_KEY), "rb") as file:
            key = serialization.load_pem_private_key(file.read(), None)
        until = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        is_pair = isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()
        if isinstance(key, ec.EllipticCurvePrivateKey) and is_pair and until > 30 * _DAY:
            return certificate, key
    made = _make_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Drumline on this machine")])
    certificate = _sign(name, made, made, is_authority=True)
    write_whole(os.path.join(folder(), _AUTHORITY_KEY), _to_text(made))
    write_whole(os.path.join(folder(), _AUTHORITY), _to_text(certificate))
    return certificate, made


def _make_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _sign(
    issuer: x509.Name, signer: EllipticCurvePrivateKey, key: EllipticCurvePrivateKey, *, is_authority: bool
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = datetime.datetime.now(datetime.UTC)
    subject = issuer
    if not is_authority:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    built = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY * 365 * (_YEARS if is_authority else 1))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if is_authority:
        networks = [x509.IPAddress(ipaddress.ip_network(host)) for host in _HOSTS]
        permitted = [x509.DNSName("localhost"), *networks]
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = built.add_extension(x509.NameConstraints(permitted, None), critical=True)
        built = built.add_extension(usage, critical=True)
    else:
        addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in _HOSTS]
        names = [x509.DNSName("localhost"), *addresses]
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return built.sign(signer, hashes.SHA256())


def _to_text(thing: x509.Certificate | EllipticCurvePrivateKey) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(Encoding.PEM).decode()
    return thing.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
