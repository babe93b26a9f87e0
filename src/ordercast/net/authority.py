"""A cluster's own certificate authority: two files that vouch for the names of its nodes.

Rules. A certificate says one thing: this key belongs to node NAME of cluster CLUSTER. It says so in
a URI, `ordercast://CLUSTER/NAME`, because hosts and ports change and names do not. The authority's
key is needed to add a node and for nothing else, so it belongs on no node. Keys are ECDSA on P-256:
every TLS library takes them. Files appear whole or not at all, and keys are readable by their owner
alone. Whatever is wrong with a file, a name or a date is a UsageError of one sentence.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ordercast.errors import UsageError
from ordercast.types import is_node_name

SCHEME = "ordercast://"
AUTHORITY_DAYS = 3650
NODE_DAYS = 365
SKEW = timedelta(minutes=5)
"""Certificates begin so much before now: a node whose clock is a little behind takes them too."""
LARGEST_PEM = 1 << 20

_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")


class CertificateFiles(NamedTuple):
    """What was put on the disk."""

    cluster: str
    authority: Path
    certificate: Path
    key: Path
    expires: datetime


# --- names -----------------------------------------------------------------------------------


def node_uri(cluster: str, name: str) -> str:
    """How a certificate says whose it is."""
    return f"{SCHEME}{cluster}/{name}"


def name_in(uris: Iterable[str], cluster: str) -> str | None:
    """The one node of this cluster that these URIs name; None where that is not clear."""
    ours = [uri.removeprefix(SCHEME) for uri in uris if uri.startswith(SCHEME)]
    if len(ours) != 1:
        return None
    where, slash, name = ours[0].partition("/")
    return name if slash and where == cluster and is_node_name(name) else None


# --- making ----------------------------------------------------------------------------------


def init(folder: str | Path, cluster: str, *, now: datetime | None = None) -> CertificateFiles:
    """Makes ca.pem and ca.key in a folder, which is made if need be. Never overwrites."""
    folder = Path(folder)
    if not is_node_name(cluster):
        raise UsageError(_bad_name("cluster", cluster))
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    common = cluster[: 64 - len(" authority")] + " authority"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    builder = _begin(key, subject, subject, now, AUTHORITY_DAYS)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(_names([f"{SCHEME}{cluster}"], []), critical=False)
        .sign(key, hashes.SHA256())
    )
    written = _places(folder, "ca", cluster, certificate)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if written.certificate.exists():
            raise FileExistsError
        written.key.touch(mode=0o600, exist_ok=False)  # whoever makes it is the one who writes
    except FileExistsError as error:
        raise UsageError(
            f"{folder} has an authority already, and a new one would not know its nodes: "
            "choose another folder"
            if folder.is_dir()
            else f"{folder} is not a folder"
        ) from error
    except OSError as error:
        raise UsageError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        _write_pair(written, certificate, key)
    except UsageError:
        written.key.unlink(missing_ok=True)
        raise
    return written


def issue(
    folder: str | Path,
    name: str,
    hosts: Sequence[str] = (),
    days: int = NODE_DAYS,
    *,
    now: datetime | None = None,
) -> CertificateFiles:
    """Makes NAME.pem and NAME.key, signed by the folder's authority. Again: a renewal."""
    folder = Path(folder)
    if not is_node_name(name):
        raise UsageError(_bad_name("node", name))
    if name.lower() == "ca":
        raise UsageError(f"a node cannot be named {name!r}: its files would be the authority's")
    now = now or datetime.now(UTC)
    authority, signer, cluster = _open_authority(folder, now)
    most = math.floor((authority.not_valid_after_utc - now) / timedelta(days=1))
    if not 1 <= days <= most:
        end = authority.not_valid_after_utc.date()
        raise UsageError(f"{days} days: give 1 to {most}, as the authority ends on {end}")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _begin(key, subject, authority.subject, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(_names([node_uri(cluster, name)], hosts), critical=False)
        .sign(signer, hashes.SHA256())
    )
    written = _places(folder, name, cluster, certificate)
    _write_pair(written, certificate, key)
    return written


def _begin(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names(uris: list[str], hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host.strip("[]"))))
        except ValueError:
            if len(host) > 253 or not _HOST.fullmatch(host):
                raise UsageError(
                    f"{host!r} is not a host: give a name or an address, without a port"
                ) from None
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _bad_name(what: str, name: str) -> str:
    return f"{name!r} is no name for a {what}: 1 to 100 of letters, digits, dot, dash, underscore"


# --- reading ---------------------------------------------------------------------------------


def examine(
    authority: Path, certificate: Path, cluster: str, name: str | None, now: datetime
) -> datetime:
    """Looks at a node's certificate as its peers will: is it signed, in time, and whose is it?

    Returns when it expires. A name of None is any name of the cluster.
    """
    roots, chain = _certificates(authority), _certificates(certificate)
    for place, link in enumerate(chain):
        issuers = chain[place + 1 : place + 2] or roots
        if not any(_is_signed(link, issuer) for issuer in issuers):
            raise UsageError(f"{certificate} was not issued by the authority in {authority}")
    first = max(each.not_valid_before_utc for each in chain)
    last = min(each.not_valid_after_utc for each in chain)
    if last <= now:
        raise UsageError(f"{certificate} expired on {last:%Y-%m-%d %H:%M} UTC")
    if first > now:
        raise UsageError(f"{certificate} is not valid before {first:%Y-%m-%d %H:%M} UTC")
    said = name_in(_uris(chain[0]), cluster)
    if said is None or name not in (None, said):
        raise UsageError(f"{certificate} is not for {node_uri(cluster, name or 'NAME')}")
    return last


def _open_authority(
    folder: Path, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey, str]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: make an authority with ordercast ca init")
    authority = _certificates(folder / "ca.pem")[0]
    clusters = [uri[len(SCHEME) :] for uri in _uris(authority) if uri.startswith(SCHEME)]
    if len(clusters) != 1 or not is_node_name(clusters[0]):
        raise UsageError(f"{folder / 'ca.pem'} is not an authority made by ordercast ca init")
    path = folder / "ca.key"
    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it wants a password
        raise UsageError(f"{path} is damaged: no private key can be read from it") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != (
        authority.public_key()
    ):
        raise UsageError(f"{path} is not the key of {folder / 'ca.pem'}")
    end = authority.not_valid_after_utc
    if end <= now + timedelta(days=1):
        word = "expired" if end <= now else "expires"
        raise UsageError(f"the authority in {folder} {word} on {end.date()}: make a new one")
    return authority, key, clusters[0]


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise UsageError(f"{path} is damaged: no certificate can be read from it") from error


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def _is_signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_PEM + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST_PEM:
        raise UsageError(f"{path} is over {LARGEST_PEM} bytes: not a PEM file of ours")
    return data


# --- writing ---------------------------------------------------------------------------------


def _places(
    folder: Path, name: str, cluster: str, certificate: x509.Certificate
) -> CertificateFiles:
    return CertificateFiles(
        cluster,
        folder / "ca.pem",
        folder / f"{name}.pem",
        folder / f"{name}.key",
        certificate.not_valid_after_utc,
    )


def _write_pair(
    written: CertificateFiles, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        _write(written.key, secret, 0o600)
        _write(written.certificate, certificate.public_bytes(Encoding.PEM), 0o644)
    except OSError as error:
        raise UsageError(f"{written.key.parent} cannot be written: {error.strerror}") from error


def _write(path: Path, data: bytes, mode: int) -> None:
    """The whole file under its name, or nothing: also when the power fails in between."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
