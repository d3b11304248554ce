"""The control plane: etcd and Kubernetes' servers, on the bridge that all nodes are plugged into."""

import contextlib
import http.client
import json
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.build import KUBE
from tests.cluster.machine.box import Box, ClusterError, run, until
from tests.cluster.machine.pki import Pki

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm")

MERGE = "application/merge-patch+json"
"""The kind of a body that has only what is to change."""
BRIDGE = "02:00:00:00:00:01"
"""Without an address of its own a bridge takes one of its ports', and another one when that port's node goes off."""


class Control(Box):
    """`net`: the first two numbers of every address, such as 10.88. `flags`: more for the API server."""

    def __init__(self, folder: Path, net: str, *flags: str) -> None:
        super().__init__(folder, "control")
        self.net, self.address, self.bin = net, f"{net}.0.1", folder / "bin"
        self.link = f"dpgw-{net}"
        """The machine's own end of the network."""
        self._flags = flags
        self._idle: list[http.client.HTTPSConnection] = []
        """Between two requests, of any thread."""

    def up(self) -> None:
        """Returns once all of it has started, and the API server answers."""
        self.up_with_api_server()
        accounts = [
            f"--service-account-private-key-file={self.pki['accounts.key']}",
            "--use-service-account-credentials",
        ]
        self._start_client("kube-controller-manager", f"--root-ca-file={self.pki['ca.crt']}", *accounts)
        self._start_client("kube-scheduler")

    def up_with_api_server(self) -> None:
        """etcd and the API server alone: nobody else sends requests."""
        self.bin.mkdir(parents=True)
        for name in NAMES:
            (self.bin / name).symlink_to(KUBE.binary())
        self.pki = Pki(self.folder / "pki", self.address, f"{self.net}.128.1")
        self.pki.kubeconfig("admin", "admin", "system:masters")
        self._open_network()
        self._start("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--log-level=warn")
        self.start_api_server()

    def close(self) -> None:
        super().close()
        while self._idle:
            self._idle.pop().close()
        run("sh", "-c", f"ip link delete {self.link} 2>&1 || true")

    def plug(self, box: Box, address: str) -> None:
        """Gives a box its eth0 on the bridge."""
        port = f"port{address.rpartition('.')[2]}"
        self.run("sh", "-c", f"ip link delete {port} 2>&1 || true")  # of the node's earlier life
        ends = ("type", "veth", "peer", "name", "eth0", "netns", box.pid)
        run("nsenter", "--net", "--target", self.pid, "ip", "link", "add", port, *ends)
        self.run("ip", "link", "set", port, "master", "br0", "up")
        box.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        box.run("ip", "link", "set", "eth0", "up")
        box.run("ip", "route", "add", "default", "via", self.address)

    def api(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """One request to the API server, much faster than kubectl; None when there is no such object."""
        connection = self._kept() or self._connection(timeout=60)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
            answer = connection.getresponse()
            data = answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ClusterError(f"{method} {path}: {answer.status} {data[:2000].decode(errors='replace')}")
        return json.loads(data) if answer.getheader("Content-Type") == "application/json" else data.decode()

    @contextlib.contextmanager
    def watch(self, path: str) -> Iterator[Iterator[Any]]:
        """The events of a watch, as they come; they end with the context, which may be left while another thread reads.
        `path`: of a list, with a query.
        """
        connection = self._connection(timeout=None)
        try:
            connection.request("GET", f"{path}&watch=true&timeoutSeconds=3600")
            answer = connection.getresponse()
            yield (json.loads(line) for line in iter(answer.readline, b""))
        finally:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _kept(self) -> http.client.HTTPSConnection | None:
        """The connection of an earlier request. To begin one takes both ends longer than most requests."""
        with contextlib.suppress(IndexError):  # there is none
            while True:
                connection = self._idle.pop()
                # What can be read between two requests is its end.
                if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                    return connection
                connection.close()
        return None

    def _connection(self, timeout: float | None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.pki["ca.crt"])
        context.load_cert_chain(self.pki["admin.crt"], self.pki["admin.key"])
        return http.client.HTTPSConnection(self.address, timeout=timeout, context=context)

    def _open_network(self) -> None:
        # a bridge without an address of its own takes one of its ports', and another one when that port's node goes off
        bridge = [f"ip link add br0 address {BRIDGE} type bridge", "ip link set br0 up"]
        addresses = {"br0": f"{self.address}/24", "lo": f"{self.net}.128.1/32"}
        own = [f"ip address add {address} dev {link}" for link, address in addresses.items()]
        self.open([*bridge, *own, "mount -t tmpfs tmpfs /run"])
        run("sh", "-c", f"ip link delete {self.link} 2>&1 || true")  # of tests that were killed just now
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "host", "netns", self.pid)
        self.run("ip", "link", "set", "host", "master", "br0", "up")
        run("ip", "address", "add", f"{self.net}.0.254/24", "dev", self.link)
        run("ip", "link", "set", self.link, "up")
        run("ip", "route", "replace", f"{self.net}.0.0/16", "via", self.address)

    def start_api_server(self) -> None:
        """Returns once it answers."""
        pki = self.pki
        self._start(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=443",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.address}",
            f"--service-cluster-ip-range={self.net}.128.0/17",
            "--allow-privileged",
            f"--tls-cert-file={pki['apiserver.crt']}",
            f"--tls-private-key-file={pki['apiserver.key']}",
            f"--client-ca-file={pki['ca.crt']}",
            f"--kubelet-client-certificate={pki['kubelet-client.crt']}",
            f"--kubelet-client-key={pki['kubelet-client.key']}",
            f"--service-account-key-file={pki['accounts.pub']}",
            f"--service-account-signing-key-file={pki['accounts.key']}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--kubelet-preferred-address-types=InternalIP",  # by name logs and exec fail, because there is no DNS
            "--enable-admission-plugins=NodeRestriction",
            *self._flags,
        )
        until("answer of the API server", self._ready)

    def _start_client(self, name: str, *arguments: str) -> None:
        own = self.pki.kubeconfig(name, f"system:{name}")
        configs = [f"--{what}kubeconfig={own}" for what in ("", "authentication-", "authorization-")]
        self._start(name, *configs, "--leader-elect=false", "--bind-address=127.0.0.1", *arguments)

    def _start(self, name: str, *arguments: str) -> None:
        self.spawn(name, [self.bin / name, *arguments])

    def _ready(self) -> bool:
        self.check_running("etcd", "kube-apiserver")
        try:
            return bool(self.api("GET", "/readyz") == "ok")
        except (OSError, ClusterError, http.client.HTTPException):
            return False
