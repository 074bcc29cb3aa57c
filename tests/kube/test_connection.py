"""Kubeconfig files and pods, from what is written there to who asks which server."""

import asyncio
import datetime
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from closeby.cli.operating.long_running import lease_of
from closeby.cli.options import Election
from closeby.kube.client.connection import Connection, connect
from closeby.objects.reasons import Problem


class Pair:
    """A self-signed certificate and its key, in PEM."""

    def __init__(self, name: str = "test") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        start = datetime.datetime(2020, 1, 1)
        certificate = (
            x509.CertificateBuilder(called, called, key.public_key(), x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=36500))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self.key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def write(path: Path, **parts: object) -> str:
    """A kubeconfig file of one cluster, user and context; ``parts`` replace what is in it."""
    content: dict[str, object] = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://api.example:8080/"}}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
        **{key.replace("_", "-"): value for key, value in parts.items()},
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


def user(**fields: object) -> list[object]:
    return [{"name": "u", "user": {key.replace("_", "-"): value for key, value in fields.items()}}]


def cluster(**fields: object) -> list[object]:
    return [{"name": "c", "cluster": {key.replace("_", "-"): value for key, value in fields.items()}}]


def connected(kubeconfig: str | None = None, **environment: str) -> Connection:
    found = connect(kubeconfig, None, environment)
    assert isinstance(found, Connection), found
    return found


def refused(kubeconfig: str | None, context: str | None = None, **environment: str) -> str:
    found = connect(kubeconfig, context, environment)
    assert isinstance(found, Problem), found
    return str(found)


def header(connection: Connection) -> str | None:
    found = asyncio.run(_header(connection))
    assert not isinstance(found, Problem), found
    return found


async def _header(connection: Connection) -> str | Problem | None:
    return await connection.credentials.authorization()


def test_the_current_context_says_which_server_and_who_asks(tmp_path: Path) -> None:
    found = connected(write(tmp_path / "config"))
    assert (found.url, found.namespace, found.tls, found.proxy) == (
        "http://api.example:8080",
        "team",
        None,
        None,
    )
    assert header(found) == "Bearer abc"


def test_files_are_merged_and_the_first_that_says_something_counts(tmp_path: Path) -> None:
    one = write(tmp_path / "one", clusters=[], contexts=[])
    two = write(tmp_path / "two", users=user(token="other"), current_context="elsewhere")
    found = connected(KUBECONFIG=f"{tmp_path / 'absent'}:{one}:{two}")
    assert (found.url, header(found)) == ("http://api.example:8080", "Bearer abc")


def test_the_file_in_the_home_directory_is_read_when_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    assert connected(HOME=str(tmp_path)).url == "http://api.example:8080"


def test_password_and_token_file(tmp_path: Path) -> None:
    named = write(tmp_path / "config", users=user(username="me", password="secret"))
    assert header(connected(named)) == "Basic bWU6c2VjcmV0"
    (tmp_path / "token").write_text("from-file\n")
    named = write(tmp_path / "config", users=user(tokenFile="token"))
    assert header(connected(named)) == "Bearer from-file"


def test_impersonation_is_passed_on(tmp_path: Path) -> None:
    named = write(tmp_path / "config", users=user(token="abc", **{"as": "her", "as_groups": ["a", "b"]}))
    assert connected(named).headers == (
        ("Impersonate-User", "her"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"current_context": "there"}, "has no context 'there'; it has here"),
        ({"current_context": None}, "has no current context; name one of here"),
        ({"current_context": None, "contexts": []}, "has no context; name another kubeconfig file"),
        ({"clusters": []}, "names the cluster 'c', which is not there; the clusters are none"),
        ({"users": []}, "names the user 'u', who is not there; the users are none"),
        ({"users": "all"}, "users in"),
        ({"clusters": cluster(server=7)}, "cluster 'c' in"),
        ({"clusters": cluster(server="ftp://x")}, "is not an address of a server"),
        (
            {"clusters": cluster(server="https://x", proxy_url="socks5://y")},
            "is not supported; give an HTTP proxy",
        ),
        (
            {"clusters": cluster(server="https://x", certificate_authority="absent.pem")},
            "give certificate-authority",
        ),
        ({"clusters": cluster(server="https://x", certificate_authority_data="%")}, "it is not base64"),
        (
            {"clusters": cluster(server="https://x", certificate_authority_data="eA==")},
            "no certificate in PEM",
        ),
        (
            {"clusters": cluster(server="https://x"), "users": user(client_certificate_data="eA==")},
            "only one of client-certificate and client-key; give both",
        ),
        (
            {
                "clusters": cluster(server="https://x"),
                "users": user(client_certificate_data="eA==", client_key_data="eA=="),
            },
            "can't be used",
        ),
        ({"users": user(exec={"args": ["x"]})}, "names no command"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(
    tmp_path: Path, parts: Mapping[str, object], message: str
) -> None:
    assert message in refused(write(tmp_path / "config", **parts))


@pytest.mark.parametrize("secret", ["hidden\nX: y", "hidden\x00", "hid den", "hiddén", "hidden\n"])
def test_a_token_that_no_header_can_hold_is_not_sent_and_not_shown(tmp_path: Path, secret: str) -> None:
    said = refused(write(tmp_path / "config", users=user(token=secret)))
    assert "token" in said and str(tmp_path / "config") in said and "hid" not in said
    (tmp_path / "given").write_text(f"{secret}\nmore")
    found = connected(write(tmp_path / "config", users=user(tokenFile="given")))
    problem = asyncio.run(_header(found))
    assert isinstance(problem, Problem)
    assert str(tmp_path / "given") in problem.message and "hid" not in str(problem)


def test_a_name_to_act_as_that_no_header_can_hold(tmp_path: Path) -> None:
    named = write(tmp_path / "config", users=user(token="abc", **{"as": "her\nX: y"}))
    assert "as-groups" in refused(named)


def test_files_that_are_not_there_or_no_kubeconfig(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert "No such file" in refused(absent)
    assert "names " + absent in refused(None, KUBECONFIG=absent)
    assert "there is no kubeconfig file, and this is not a pod" in refused(None, HOME=str(tmp_path))
    assert "no kubeconfig file with the context 'x'" in refused(None, "x", HOME=str(tmp_path))
    broken = tmp_path / "broken"
    broken.write_text("a: [")
    assert "is not YAML" in refused(str(broken))
    broken.write_text("- a")
    assert "is not a kubeconfig file" in refused(str(broken))


def test_certificates_from_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    pair = Pair()
    (tmp_path / "ca.crt").write_bytes(pair.certificate)
    (tmp_path / "me.crt").write_bytes(pair.certificate)
    (tmp_path / "me.key").write_bytes(pair.key)
    found = connected(
        write(
            tmp_path / "config",
            clusters=cluster(server="https://x", certificate_authority="ca.crt", tls_server_name="api"),
            users=user(client_certificate="me.crt", client_key="me.key"),
        )
    )
    assert found.tls is not None
    assert [ca["subject"] for ca in found.tls.get_ca_certs()] == [((("commonName", "test"),),)]
    assert found.server_name == "api"
    assert header(found) is None


@pytest.mark.parametrize(
    ("exempt", "proxy"),
    [
        ("", "http://proxy:3128"),
        ("example", None),
        (".api.example", None),
        ("pi.example", "http://proxy:3128"),
        ("other,*", None),
        ("10.0.0.0/8", "http://proxy:3128"),
    ],
)
def test_a_proxy_from_the_environment(tmp_path: Path, exempt: str, proxy: str | None) -> None:
    named = write(tmp_path / "config")
    for written in ("http://proxy:3128", "proxy:3128"):
        assert connected(named, http_proxy=written, NO_PROXY=exempt).proxy == proxy


def test_no_proxy_covers_networks_and_this_machine(tmp_path: Path) -> None:
    named = write(tmp_path / "config", clusters=cluster(server="http://10.1.2.3"))
    assert connected(named, HTTP_PROXY="http://p:1", no_proxy="10.0.0.0/8").proxy is None
    named = write(tmp_path / "config", clusters=cluster(server="http://127.0.0.1:80"))
    assert connected(named, HTTP_PROXY="http://p:1").proxy is None


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(Pair().certificate)
    (tmp_path / "namespace").write_text("closeby-system")
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOME": str(tmp_path),
    }
    without = connect(None, None, environment, tmp_path)
    assert isinstance(without, Problem) and "automountServiceAccountToken" in without.remedy

    (tmp_path / "token").write_text("first\n")
    found = connect(None, None, environment, tmp_path)
    assert isinstance(found, Connection)
    assert (found.url, found.namespace) == ("https://10.0.0.1:443", "closeby-system")

    async def rotated() -> list[str | Problem | None]:
        seen = [await _header(found)]
        (tmp_path / "token").write_text("second\n")
        seen.append(await _header(found))
        found.credentials.refused()
        seen.append(await _header(found))
        return seen

    assert asyncio.run(rotated()) == ["Bearer first", "Bearer first", "Bearer second"]


def plugin(folder: Path, status: str) -> dict[str, object]:
    """An exec plugin that counts its runs in ``count`` and prints ``status``, a Python expression."""
    script = folder / "plugin"
    script.write_text(
        dedent(f"""\
        #!{sys.executable}
        import datetime, json, pathlib, sys
        count = pathlib.Path({str(folder / "count")!r})
        run = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(run))
        def after(seconds):
            moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
            return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        version = "client.authentication.k8s.io/v1"
        print(json.dumps(dict(apiVersion=version, kind="ExecCredential", status={status})))
        """)
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "interactiveMode": "Never",
    }


def test_an_exec_plugin_is_asked_again_before_its_token_ends(tmp_path: Path) -> None:
    given = plugin(tmp_path, '{"token": f"t{run}", "expirationTimestamp": after(3600 if run > 1 else -1)}')
    found = connected(write(tmp_path / "config", users=user(exec=given)))

    async def asked() -> list[str | Problem | None]:
        seen = [await _header(found), *await asyncio.gather(_header(found), _header(found))]
        found.credentials.refused()
        return [*seen, await _header(found)]

    # The first token has ended when it comes; the second holds, and both who wait for it get it.
    assert asyncio.run(asked()) == ["Bearer t1", "Bearer t2", "Bearer t2", "Bearer t3"]


def test_an_exec_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    pair = Pair()
    status = (
        f'{{"clientCertificateData": {pair.certificate.decode()!r}, "clientKeyData": {pair.key.decode()!r}}}'
    )
    secure = write(
        tmp_path / "config", clusters=cluster(server="https://x"), users=user(exec=plugin(tmp_path, status))
    )
    assert header(connected(secure)) is None
    plain = connected(write(tmp_path / "config", users=user(exec=plugin(tmp_path, status))))
    assert "a server without TLS" in str(asyncio.run(_header(plain)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"command": "closeby-no-such-plugin", "installHint": "get it"},
            "closeby-no-such-plugin is not here; get it",
        ),
        ({"command": "false"}, "failed: exec: process returned 1"),
        ({"command": "true"}, "failed: exec: failed to decode process output"),
    ],
)
def test_an_exec_plugin_that_fails(tmp_path: Path, given: Mapping[str, object], message: str) -> None:
    given = {"apiVersion": "client.authentication.k8s.io/v1", **given}
    found = asyncio.run(_header(connected(write(tmp_path / "config", users=user(exec=given)))))
    assert isinstance(found, Problem)
    assert message in str(found)


def test_an_exec_plugin_without_a_credential(tmp_path: Path) -> None:
    found = connected(write(tmp_path / "config", users=user(exec=plugin(tmp_path, "{}"))))
    assert "gave no credential" in str(asyncio.run(_header(found)))


def test_an_identity_providers_token(tmp_path: Path) -> None:
    # {"alg":"none"} . {"exp":4102444800} .
    token = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.e30"
    provider = {"name": "oidc", "config": {"id-token": token}}
    found = connected(write(tmp_path / "config", users=user(auth_provider=provider)))
    assert header(found) == f"Bearer {token}"
    provider = {"name": "oidc", "config": {}}
    found = connected(write(tmp_path / "config", users=user(auth_provider=provider)))
    assert "failed" in str(asyncio.run(_header(found)))


@pytest.mark.parametrize(
    ("given", "told", "expected"),
    [("given", "told", "given"), (None, "told", "told"), (None, "", "team"), (None, None, "team")],
)
def test_the_lease_is_where_the_process_counts_as_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, told: str | None, expected: str
) -> None:
    """One that runs by hand as a pod of a namespace must not lead beside the pods of that namespace."""
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    if told is not None:
        monkeypatch.setenv("POD_NAMESPACE", told)
    lease = lease_of(Election(True, "closeby", given), connected(write(tmp_path / "c")), "me", dry_run=False)
    assert lease is not None
    assert lease.namespace == expected
