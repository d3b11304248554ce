"""The certificates and kubeconfigs of a cluster, made by openssl."""

import json
from pathlib import Path

from tests.cluster.machine.box import run


class Pki:
    """`server`: the API server's address, which its certificate names beside `others`."""

    def __init__(self, folder: Path, server: str, others: str) -> None:
        self.folder, self._server = folder, server
        folder.mkdir(mode=0o700)
        (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
        self._certificate("ca", "/CN=cluster", "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign")
        names = f"subjectAltName=DNS:kubernetes.default.svc,IP:127.0.0.1,IP:{server},IP:{others}"
        self._certificate("apiserver", "/CN=kube-apiserver", names, "extendedKeyUsage=serverAuth")
        self._certificate("kubelet-client", "/O=system:masters/CN=apiserver", "extendedKeyUsage=clientAuth")
        key = ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
        run("openssl", "genpkey", *key, "-out", self["accounts.key"])
        run("openssl", "pkey", "-in", self["accounts.key"], "-pubout", "-out", self["accounts.pub"])

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def kubeconfig(self, name: str, user: str, group: str = "") -> Path:
        """The path of a kubeconfig for this user; it is made when it isn't there."""
        path = self[f"{name}.kubeconfig"]
        if not path.exists():
            subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
            self._certificate(name, subject, "extendedKeyUsage=clientAuth")
            cluster = {"server": f"https://{self._server}", "certificate-authority": str(self["ca.crt"])}
            client = {"client-certificate": str(self[f"{name}.crt"]), "client-key": str(self[f"{name}.key"])}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "cluster",
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": name, "user": client}],
                "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
            }
            path.write_text(json.dumps(config))
        return path

    def _certificate(self, name: str, subject: str, *extensions: str) -> None:
        signed = () if name == "ca" else ("-CA", self["ca.crt"], "-CAkey", self["ca.key"])
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        added = [word for extension in extensions for word in ("-addext", extension)]
        files = ("-config", self["openssl.cnf"], "-keyout", self[f"{name}.key"], "-out", self[f"{name}.crt"])
        run("openssl", "req", "-x509", *curve, *files, "-subj", subject, *signed, *added)
