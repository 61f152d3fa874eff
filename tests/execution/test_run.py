"""Work here, on processes, and on a real TLS cluster; workers that die; addresses that are refused."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.errors import PermafrostError
from pipeline.execution.cluster import Tls
from pipeline.execution.run import check_address, run
from tests.imports import ROOT


def square(piece: int) -> int:
    return piece**2


def dies_once(piece: int) -> int:
    """Kill the worker the first time that piece 2 is tried."""
    flag = Path(os.environ["DIED"])
    if piece == 2 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return piece


def always_dies(piece: int) -> int:
    if piece == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return piece


def raises(piece: int) -> int:
    raise PermafrostError(f"row {piece} is bad")


def first_raises(piece: int) -> int:
    if piece == 0:
        raise PermafrostError("row 0 is bad")
    time.sleep(0.5)
    return piece


@pytest.mark.parametrize("count", [0, 1, 4, 5, 13])
def test_every_piece_is_run_once_whatever_the_number(count):
    pieces = list(range(count))
    assert dict(run(square, pieces, "inline")) == {piece: piece**2 for piece in pieces}


def test_a_scheduler_that_is_none_is_refused_even_with_nothing_to_run():
    with pytest.raises(PermafrostError, match="'bogus' is no scheduler"):
        list(run(square, [], "bogus"))


@pytest.mark.parametrize("count", [1, 4, 5, 13])
def test_every_piece_is_run_once_on_processes(count):
    found = list(run(square, list(range(count)), "local:2"))
    assert sorted(found) == [(piece, piece**2) for piece in range(count)]


def test_a_worker_that_dies_costs_no_piece(tmp_path, monkeypatch):
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    assert sorted(piece for piece, _ in run(dies_once, list(range(6)), "local:2")) == list(range(6))
    assert (tmp_path / "died").exists()


def test_a_piece_that_ends_every_worker_is_named():
    with pytest.raises(PermafrostError, match=r"piece 2 ended every worker[\s\S]*finished pieces are kept"):
        list(run(always_dies, [0, 1, 2], "local:1"))


def test_an_error_on_a_worker_is_the_users_error_here():
    with pytest.raises(PermafrostError, match="row 3 is bad"):
        list(run(raises, [3], "local:1"))


def test_what_is_under_way_at_an_error_is_not_lost_and_nothing_new_begins():
    results = run(first_raises, list(range(50)), "local:2")
    assert sorted(next(results)[0] for _ in range(3)) == [1, 2, 3]
    with pytest.raises(PermafrostError, match="row 0 is bad"):
        next(results)


def test_a_scheduler_without_workers_is_waited_for_and_one_that_joins_late_gets_work(capsys):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        threading.Timer(0.5, cluster.scale, [1]).start()
        pieces = run(square, list(range(40)), cluster.scheduler_address)
        assert next(pieces) == (0, 0)
        assert "has no workers yet: waiting for the first" in capsys.readouterr().out
        cluster.scale(2)
        assert sorted(pieces) == [(piece, piece**2) for piece in range(1, 40)]


@pytest.mark.parametrize("scheduler", ["inline", "local:4", "tls://10.0.0.1:8786", "tcp://127.0.0.1:8786"])
def test_safe_schedulers_are_accepted(scheduler):
    check_address(scheduler)
    check_address("insecure+tcp://10.0.0.1:8786")


@pytest.mark.parametrize(
    "scheduler",
    [
        "",
        "local",
        "local:0",
        "local:x",
        "http://a:1",
        "tls://host",
        "10.0.0.1:8786",
        "tls://h:99999",
        "tls://h:x",
        "tls://[::1",
        "local:²",
    ],
)
def test_what_is_no_scheduler_is_refused_with_what_would_be(scheduler):
    with pytest.raises(PermafrostError, match=r"is no scheduler\s+to mend: inline, local:N"):
        check_address(scheduler)


def test_plain_tcp_to_another_host_is_refused_unless_asked_for_by_name():
    with pytest.raises(PermafrostError, match=r"not encrypted[\s\S]*insecure\+tcp://10.0.0.1:8786"):
        check_address("tcp://10.0.0.1:8786")


def test_tls_without_certificates_says_which_variables_name_them():
    with pytest.raises(PermafrostError, match="PERMAFROST_TLS_CA, PERMAFROST_TLS_CERT and PERMAFROST_TLS_KEY"):
        list(run(square, [1], "tls://127.0.0.1:1"))


def test_tls_with_files_that_are_no_certificates_names_them(tmp_path):
    (tmp_path / "junk.pem").write_text("junk")
    for file in (tmp_path / "junk.pem", tmp_path / "none.pem"):
        with pytest.raises(PermafrostError, match=f"{file.name} cannot be used[\\s\\S]*PERMAFROST_TLS_CA"):
            list(run(square, [1], "tls://127.0.0.1:1", Tls(str(file), str(file), str(file))))


def certificate(folder: Path) -> Tls:
    """A self-signed certificate that is its own authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "permafrost-test")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(signed.public_bytes(pem))
    form = serialization.PrivateFormat.TraditionalOpenSSL
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return Tls(str(folder / "cert.pem"), str(folder / "cert.pem"), str(folder / "key.pem"))


@pytest.mark.slow
def test_a_real_cluster_under_tls(tmp_path):
    """A scheduler and two workers in processes of their own, on loopback; without certificates nobody gets in."""
    tls = certificate(tmp_path)
    files = ["--tls-ca-file", tls.ca, "--tls-cert", tls.certificate, "--tls-key", tls.key]
    address_file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    options = ["--host", "tls://127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(address_file)]
    processes = [subprocess.Popen([*dask, *options, *files], cwd=ROOT, stderr=subprocess.DEVNULL)]
    try:
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(address_file)]
        more = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--protocol", "tls"]
        processes += [subprocess.Popen([*worker, *more, *files], cwd=ROOT, stderr=subprocess.DEVNULL) for _ in "12"]
        address = wait_for_address(address_file)
        assert address.startswith("tls://")
        found = dict(run(square, list(range(9)), address, tls))
        assert found == {piece: piece**2 for piece in range(9)}
        with pytest.raises(PermafrostError, match="needs certificates"):
            list(run(square, [1], address))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_address(file: Path) -> str:
    import json

    for _ in range(300):
        if file.exists() and file.read_text():
            return json.loads(file.read_text())["address"]
        time.sleep(0.1)
    raise AssertionError("the scheduler did not start")
