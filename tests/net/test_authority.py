"""The authority: what its certificates say, what it refuses, and what is left on the disk."""

from __future__ import annotations

import ipaddress
import os
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import UsageError
from ordercast.net import authority
from ordercast.net.authority import examine, init, issue, name_in, node_uri
from ordercast.net.security import Tls
from ordercast.types import NODE_NAME

LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init(tmp_path, "shop", now=LONG_AGO)
    return tmp_path


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]):
    return certificate.extensions.get_extension_for_class(kind)


# --- what certificates say -------------------------------------------------------------------


def test_the_authority_signs_nodes_and_nothing_else(folder: Path) -> None:
    root = read(folder / "ca.pem")
    assert isinstance(root.public_key(), ec.EllipticCurvePublicKey)
    constraints = extension(root, x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = extension(root, x509.KeyUsage).value
    assert (usage.key_cert_sign, usage.digital_signature) == (True, False)
    assert root.not_valid_before_utc <= LONG_AGO


def test_a_certificate_names_its_node_and_its_hosts(folder: Path) -> None:
    hosts = ["a.example", "10.0.0.1", "[fe80::1]", "a.example"]
    written = issue(folder, "n-1.x", hosts, 30, now=LONG_AGO)
    node = read(written.certificate)
    names = extension(node, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["ordercast://shop/n-1.x"]
    assert names.get_values_for_type(x509.DNSName) == ["a.example"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("10.0.0.1"),
        ipaddress.ip_address("fe80::1"),
    ]
    assert list(extension(node, x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]
    assert extension(node, x509.BasicConstraints).value.ca is False
    node.verify_directly_issued_by(read(folder / "ca.pem"))
    assert node.not_valid_after_utc == written.expires == LONG_AGO + 30 * DAY


def test_every_certificate_has_a_serial_and_a_key_of_its_own(folder: Path) -> None:
    nodes = [read(issue(folder, name, now=LONG_AGO).certificate) for name in ("n1", "n2", "n1")]
    assert len({node.serial_number for node in nodes}) == 3
    assert len({node.public_key().public_numbers() for node in nodes}) == 3


def test_the_longest_names_fit(tmp_path: Path) -> None:
    init(tmp_path, "c" * 100, now=LONG_AGO)
    written = issue(tmp_path, "n" * 100, now=LONG_AGO)
    examine(tmp_path / "ca.pem", written.certificate, "c" * 100, "n" * 100, LONG_AGO)


def test_our_certificates_pass_strict_verification(tmp_path: Path) -> None:
    """Newer Pythons verify so by default in their other tools."""
    init(tmp_path, "shop")
    written = issue(tmp_path, "n1", ["localhost"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(written.certificate, written.key)
    client = ssl.create_default_context(cafile=written.authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, _ = shake(client, server, "localhost")
    assert ours.version() == "TLSv1.3"


def shake(
    client: ssl.SSLContext, server: ssl.SSLContext, host: str | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake without a socket: both ends of it, or the error of whoever refused."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(down, up, False, host), server.wrap_bio(up, down, True))
    for _ in range(3):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends


# --- what is on the disk ---------------------------------------------------------------------


def test_keys_are_private_and_nothing_else_is_left_behind(folder: Path) -> None:
    old = os.umask(0)
    try:
        issue(folder, "n1", now=LONG_AGO)
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes.pop("ca.pem") & 0o600 == 0o600
    assert modes == {"ca.key": 0o600, "n1.key": 0o600, "n1.pem": 0o644}


def test_a_renewal_replaces_files_and_never_writes_into_them(folder: Path) -> None:
    first = issue(folder, "n1", now=LONG_AGO)
    with first.certificate.open("rb") as file:
        before = first.certificate.read_bytes()
        issue(folder, "n1", now=LONG_AGO)
        assert file.read() == before
    assert first.certificate.read_bytes() != before


def test_a_disk_that_fails_leaves_what_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue(folder, "n1", now=LONG_AGO)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(authority.os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        issue(folder, "n1", now=LONG_AGO)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(UsageError, match="No space left"):
        init(folder / "new", "shop")
    assert list((folder / "new").iterdir()) == []


@pytest.mark.parametrize("left", ["ca.key", "ca.pem"])
def test_half_an_authority_is_not_overwritten_either(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("precious")
    with pytest.raises(UsageError, match="has an authority already"):
        init(tmp_path, "shop")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {left: "precious"}


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "n1\n", "x" * 101, "ca", "Ca"])
def test_invalid_node_names_are_rejected(folder: Path, name: str) -> None:
    with pytest.raises(UsageError):
        issue(folder, name, now=LONG_AGO)
    assert sorted(path.name for path in folder.iterdir()) == ["ca.key", "ca.pem"]


@pytest.mark.parametrize(
    "host", ["", "a:1", "a_b", "-a", "a-", "a..b", "*.a", "ü.example", "x" * 64]
)
def test_invalid_hosts_are_rejected(folder: Path, host: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        issue(folder, "n1", [host], now=LONG_AGO)


def test_an_authority_issues_nothing_beyond_its_own_expiry(folder: Path) -> None:
    end = LONG_AGO + authority.AUTHORITY_DAYS * DAY
    with pytest.raises(UsageError, match="expired on 2011-02-01"):
        issue(folder, "n1", now=end)
    with pytest.raises(UsageError, match="expires on 2011-02-01"):
        issue(folder, "n1", days=1, now=end - DAY)
    with pytest.raises(UsageError, match="365 days: give 1 to 10, as the authority ends on"):
        issue(folder, "n1", now=end - 10 * DAY)
    assert issue(folder, "n1", days=10, now=end - 10 * DAY).expires == end


@pytest.mark.parametrize("file", ["ca.pem", "ca.key"])
@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n", None])
def test_a_damaged_authority_is_rejected(folder: Path, file: str, content: bytes | None) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(UsageError, match=f"{file} (is damaged|cannot be read)"):
        issue(folder, "n1", now=LONG_AGO)


def test_the_key_of_another_authority_is_rejected(folder: Path, tmp_path: Path) -> None:
    other = init(tmp_path / "other", "shop", now=LONG_AGO)
    other.key.rename(folder / "ca.key")
    with pytest.raises(UsageError, match="is not the key of"):
        issue(folder, "n1", now=LONG_AGO)


def test_the_certificate_of_a_node_cannot_issue_others(folder: Path) -> None:
    written = issue(folder, "n1", now=LONG_AGO)
    written.certificate.rename(folder / "ca.pem")
    written.key.rename(folder / "ca.key")
    with pytest.raises(UsageError, match="is not an authority made by"):
        issue(folder, "n2", now=LONG_AGO)


def test_a_certificate_that_does_not_fit_is_rejected_with_the_reason(
    folder: Path, tmp_path: Path
) -> None:
    root = folder / "ca.pem"
    mine = issue(folder, "n1", days=10, now=LONG_AGO).certificate
    assert examine(root, mine, "shop", "n1", LONG_AGO) == LONG_AGO + 10 * DAY
    assert examine(root, mine, "shop", None, LONG_AGO) == LONG_AGO + 10 * DAY
    other = init(tmp_path / "other", "shop", now=LONG_AGO).certificate
    for arguments, said in [
        ((root, mine, "shop", "n2", LONG_AGO), "is not for ordercast://shop/n2"),
        ((root, mine, "bank", "n1", LONG_AGO), "is not for ordercast://bank/n1"),
        ((root, root, "shop", None, LONG_AGO), "is not for ordercast://shop/NAME"),
        ((root, mine, "shop", "n1", LONG_AGO + 10 * DAY), "expired on 2001-02-13"),
        ((root, mine, "shop", "n1", LONG_AGO - DAY), "is not valid before 2001-02-03"),
        ((other, mine, "shop", "n1", LONG_AGO), "was not issued by the authority in"),
    ]:
        with pytest.raises(UsageError, match=said):
            examine(*arguments)


# --- what a node takes -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    init(folder, "shop")
    issue(folder, "n1")
    issue(folder, "n2")
    return folder


def test_unusable_certificate_files_are_reported_at_the_start(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, mine, key = made / "ca.pem", made / "n1.pem", made / "n1.key"
    junk = tmp_path / "junk"
    junk.write_text("junk")
    for files, said in [
        ((root, mine, made / "n2.key"), "does not go with"),
        ((root, mine, tmp_path / "none"), "No such file"),
        ((root, tmp_path / "none", key), "cannot be read"),
        ((junk, mine, key), "is damaged"),
        ((root, junk, key), "is damaged"),
        ((root, made / "n2.pem", made / "n2.key"), "is not for ordercast://shop/n1"),
    ]:
        with pytest.raises(UsageError, match=said):
            Tls(*files, cluster="shop", name="n1")
    with pytest.raises(UsageError, match="expired on"):
        Tls(root, mine, key, cluster="shop", now=lambda: datetime(2999, 1, 1, tzinfo=UTC))
    assert caplog.text == ""
    open_to_all = tmp_path / "n1.key"
    open_to_all.write_bytes(key.read_bytes())
    open_to_all.chmod(0o644)
    Tls(root, mine, open_to_all, cluster="shop")
    assert "can be read by others" in caplog.text


def test_a_key_with_a_password_is_rejected_without_a_prompt(made: Path, tmp_path: Path) -> None:
    key = form.load_pem_private_key((made / "n1.key").read_bytes(), None)
    locked = tmp_path / "n1.key"
    locked.write_bytes(
        key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret")
        )
    )
    with pytest.raises(UsageError, match="does not go with"):
        Tls(made / "ca.pem", made / "n1.pem", locked, cluster="shop")


def test_damaged_files_are_reported_once_and_the_old_certificate_stays_in_use(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    init(tmp_path, "shop")
    half_renewed = issue(tmp_path, "n1").certificate.read_bytes()
    mine = issue(tmp_path, "n1")
    tls = Tls(mine.authority, mine.certificate, mine.key, cluster="shop", name="n1")
    contexts = tls.server, tls.client
    serials = [shake(tls.client, tls.server)[0].getpeercert()["serialNumber"]]
    other = (made / "n1.key").read_bytes()
    for path, damage in [
        (mine.key, b"junk"),
        (mine.key, other),
        (mine.key, None),
        (mine.certificate, half_renewed),  # in order, but its key has not come yet
        (mine.certificate, b""),
        (mine.certificate, (made / "n1.pem").read_bytes()),
        (mine.authority, b"junk"),
    ]:
        before = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        caplog.clear()
        assert not tls.maybe_reload()
        assert caplog.text.count("the old certificate stays in use") == 1
        assert not tls.maybe_reload()
        assert caplog.text.count("the old certificate stays in use") == 1
        for end in shake(tls.client, tls.server):
            assert end.getpeercert()["serialNumber"] == serials[0]
        path.write_bytes(before)
        path.chmod(0o600)
        assert tls.maybe_reload()
    issue(tmp_path, "n1")
    assert tls.maybe_reload()
    assert (tls.server, tls.client) == contexts
    for end in shake(tls.client, tls.server):
        assert end.getpeercert()["serialNumber"] not in serials


def test_an_authority_beside_the_old_one_counts_after_a_reload(made: Path, tmp_path: Path) -> None:
    init(tmp_path, "shop")
    mine = issue(tmp_path, "n1")
    ours = Tls(mine.authority, mine.certificate, mine.key, cluster="shop")
    theirs = Tls(made / "ca.pem", made / "n2.pem", made / "n2.key", cluster="shop")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(ours.client, theirs.server)
    assert (ours.refused, theirs.refused) == (1, 0)
    with mine.authority.open("ab") as file:
        file.write((made / "ca.pem").read_bytes())
    assert ours.maybe_reload()
    theirs.server.load_verify_locations(mine.authority)
    shake(ours.client, theirs.server)


# --- names in URIs ---------------------------------------------------------------------------

NAMES = st.from_regex(NODE_NAME, fullmatch=True)


@given(NAMES, NAMES, NAMES)
def test_a_uri_names_one_node_of_one_cluster(cluster: str, name: str, other: str) -> None:
    uri = node_uri(cluster, name)
    assert name_in([uri], cluster) == name
    assert name_in(["https://a.example/", uri], cluster) == name
    assert name_in([uri], other) == (name if other == cluster else None)
    assert name_in([uri, node_uri(cluster, other)], cluster) is None


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "ordercast://shop",
        "ordercast://shop/",
        "ordercast://shop/a/b",
        "ordercast://shop//a",
        "ORDERCAST://shop/a",
        "ordercast:shop/a",
        "ordercast://x@shop/a",
        "ordercast://shop:1/a",
        "ordercast://shop/a?b",
        "ordercast://shop/a%62",
        "ordercast://shop/a\n",
        "ordercast://shop/..",
    ],
)
def test_uris_that_name_no_node_are_rejected(uri: str) -> None:
    assert name_in([uri], "shop") is None
