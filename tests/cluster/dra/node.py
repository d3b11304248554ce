"""The gateway as a process on a node of the cluster, with resources of three drivers by DRA; and what asks for them."""

import asyncio
import json
import signal
import time
from collections import Counter, defaultdict

from dpgateway_simulator.wire.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from dpgateway_simulator.wire.plugin_calls import PluginCalls
from tests.cluster.machine.box import ClusterError, until
from tests.cluster.machine.cluster import PODS, WAITS
from tests.cluster.machine.control import MERGE
from tests.real_kubelet.node.image import IMAGE
from tests.support.gateway import COMMAND

DRIVER = "dra.example.com"
CLAIMED, ZERO, AES, FFT, SHARED, MANY = (
    f"example.com/{name}" for name in ("claimed", "zero", "aes", "fft", "shared", "many")
)
COUNTS = {CLAIMED: 3, ZERO: 2, AES: 1, FFT: 1, SHARED: 1, MANY: 33}
"""The devices of each resource on each node. Those of AES and FFT are one board."""
IDS = "a", "b", "c"
"""Of CLAIMED."""
CHOSEN = "chosen"
"""A function of the board of AES, for a claim."""

GROUP = "/apis/resource.k8s.io/v1"
CLASSES, RULES = f"{GROUP}/deviceclasses", f"{GROUP}/devicetaintrules"
CLAIMS, TEMPLATES = (f"{GROUP}/namespaces/default/{name}" for name in ("resourceclaims", "resourceclaimtemplates"))
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
ALL_SLICES = f"{GROUP}/resourceslices?fieldSelector=spec.driver%3D{DRIVER}"
SLICES = f"{ALL_SLICES}%2Cspec.nodeName%3D"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
EVENTS = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3D"
EARLY = "no relationship found between node"
"""What the API server says to a kubelet of a claim whose pod it doesn't know to be there."""


def class_of(resource):
    """The name of the DeviceClass."""
    return resource.replace("/", ".")


def device_class(resource):
    selector = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].resource == "{resource}"'
    spec = {"extendedResourceName": resource, "selectors": [{"cel": {"expression": selector}}]}
    return {"metadata": {"name": class_of(resource)}, "spec": spec}


def pod(name, node, limits=None, **more):
    """A pod that the scheduler sends to the node, because it makes the claims. `more`: fields of its spec."""
    container = {"name": "c", "image": IMAGE, "command": WAITS, "resources": {"limits": limits or {}}}
    selector = {"kubernetes.io/hostname": node}
    spec = {"nodeSelector": selector, "terminationGracePeriodSeconds": 0, "containers": [container], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def container(name, limits, command=WAITS):
    return {"name": name, "image": IMAGE, "command": command, "resources": {"limits": limits}}


def claiming(name, node, spec=None, *, claim="", template=""):
    """A pod with a claim by hand: one that exists, or one from a template. `spec`: more fields."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    one = pod(name, node, resourceClaims=[{"name": "it", **source}], **(spec or {}))
    one["spec"]["containers"][0]["resources"] = {"claims": [{"name": "it"}]}
    return one


def request(resource, *expressions, name="r", **more):
    """One request of a claim; `expressions`: of CEL."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": name, "exactly": {"deviceClassName": class_of(resource), "selectors": selectors, **more}}


def claim(name, *requests):
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests)}}}


def with_function(made, id_):
    """The claim, with a function of a board that it chooses."""
    parameters = {"apiVersion": "dpgateway/v1alpha1", "kind": "Parameters", "options": {"function": id_}}
    made["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    return made


def has_id(id_):
    """CEL."""
    return f'device.attributes["{DRIVER}"].id == "{id_}"'


def published(cluster):
    """How often the driver's slices have each device, by its name."""
    slices = cluster.control.api("GET", ALL_SLICES)["items"]
    return Counter(device["name"] for one in slices for device in one["spec"].get("devices", ()))


def uids(objects):
    """Of a list."""
    return {one["metadata"]["uid"] for one in objects["items"]}


def account(cluster):
    """Makes the gateways' account, and returns the file of its token."""
    api = cluster.control.api
    api("POST", ACCOUNTS, {"metadata": {"name": "gateway"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "ServiceAccount", "name": "gateway", "namespace": "default"}]
    api("POST", BINDINGS, {"metadata": {"name": "gateway"}, "roleRef": role, "subjects": subjects})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = cluster.folder / "token"
    token.write_text(api("POST", f"{ACCOUNTS}/gateway/token", asked)["status"]["token"])
    return token


class DraNode:
    """A node, and its gateway."""

    def __init__(self, cluster, name, token):
        self.cluster, self.name, self.node = cluster, name, cluster.nodes[name]
        self.folder = self.node.folder / "gateway"
        self.folder.mkdir()
        self._token, self._faults = token, self.folder / "faults.json"
        self._gone = set()
        self._config = self.folder / "config.json"
        self._fronts = {}
        self._write()

    def prepare(self):
        """Makes the device nodes, which are gone with the node's power."""
        zeros = {**{f"claimed-{index}": 5 for index in range(len(IDS))}, "dpgzero0": 5, "dpgzero1": 7, "board": 5}
        self.node.run("sh", "-c", "; ".join(f"mknod -m 666 /dev/{name} c 1 {minor}" for name, minor in zeros.items()))

    def start(self, which="gateway"):
        """`which`: the name of its process, so that two can run."""
        words = ["run", f"--config={self._config}", f"--node-name={self.name}"]
        self.node.spawn(which, [*COMMAND, *words, f"--control-socket={self.folder / which}.sock"])

    def kill(self):
        self.node.end("gateway", signal.SIGKILL)

    def stop(self):
        self.node.end("gateway")

    def serves(self, resource):
        """Whether the gateway has told a kubelet of the resource's devices."""
        words = ["status", resource, "--output=json", f"--control-socket={self.folder / 'gateway'}.sock"]
        try:
            found = json.loads(self.node.run(*COMMAND, *words))["resources"]
        except ClusterError:
            return False  # no gateway answers yet
        return any(one["state"] in ("serving", "published") for it in found for one in it["registrations"])

    @property
    def log(self):
        return self.node.log("gateway")

    def fault(self, *faults):
        """The faults of CLAIMED's driver from now on."""
        _replace(self._faults, {"faults": faults})

    def unprepare(self, name):
        """Asks for the end of the pod's claim, as a kubelet does; returns why that fails."""
        claim = self.cluster.pod(name)["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        uid = self.cluster.control.api("GET", f"{CLAIMS}/{claim}")["metadata"]["uid"]
        root = self.node.folder / "kubelet"
        (socket,) = (root / "plugins" / DRIVER).glob("dra-*.sock")

        async def ask():
            calls = PluginCalls(root, socket, "kubelet")
            await calls.dial()
            try:
                return await calls.unprepare("v1.DRAPlugin", [Claim("default", uid, claim)], 30.0)
            finally:
                calls.close()

        return asyncio.run(ask())[uid].error

    def change_fronts(self, **fronts):
        """The fronts of these resources, by the last part of their names; others are by DRA. It reloads them."""
        if fronts != self._fronts:
            self._fronts = fronts
            self._write()

    def restore(self, gone=()):
        """All runs again, also after a test that failed, and what a test made is deleted; :meth:`ready` waits until
        nothing is left of it. Returns the uids of that. `gone`: those that were deleted for another node, too.
        """
        if not self.node.is_open:
            self.node.up()
            self.prepare()
        elif not self.node.runs("kubelet"):
            self.node.start_kubelet(self.node.release)
        if self.node.runs("next"):
            self.node.end("next")
        if not self.node.runs("gateway"):
            self.start()
        self.fault()
        self.change_fronts()
        api = self.cluster.control.api
        for path in (TEMPLATES, RULES, QUOTAS):
            for one in api("GET", path)["items"]:
                api("DELETE", f"{path}/{one['metadata']['name']}")
        self._gone |= self.cluster.delete() | set(gone)
        for one in api("GET", CLAIMS)["items"]:
            api("DELETE", f"{CLAIMS}/{one['metadata']['name']}")
            self._gone.add(one["metadata"]["uid"])
        return set(self._gone)

    def ready(self):
        """Waits until all devices are published, and nothing is left of an earlier test."""
        self.until_published()
        until(f"no device of a plugin on {self.name}", lambda: not any(map(self.node.allocatable, COUNTS)))
        until(f"end of pods on {self.name}", lambda: self.node.has_none_of(self._gone))
        claims = f"{GROUP}/resourceclaims"
        until("end of claims", lambda: self._gone.isdisjoint(uids(self.cluster.control.api("GET", claims))))
        self._gone.clear()

    @property
    def written(self):
        """What each slice says, by its uid and version: another one if somebody wrote it."""
        found = [(one["metadata"], one["spec"]) for one in self.slices]
        return {f"{metadata['uid']} {metadata['resourceVersion']}": spec for metadata, spec in found}

    @property
    def slices(self):
        return self.cluster.control.api("GET", f"{SLICES}{self.name}")["items"]

    def devices(self, resource):
        """The published devices of a resource, by their ids."""
        return dict(self._published[resource])

    @property
    def _published(self):
        """The ids and devices of each resource."""
        found = defaultdict(list)
        for device in (device for one in self.slices for device in one["spec"].get("devices", ())):
            said = {key: value.get("string") for key, value in device["attributes"].items()}
            found[said["resource"]].append((said["id"], device))
        return found

    def healthy(self, resource):
        return {id_ for id_, one in self._published[resource] if "taints" not in one}

    def until_published(self):
        """Until all devices are in slices."""
        try:
            until(f"slices of {self.name}", lambda: self.counts == COUNTS)
        except ClusterError as error:
            raise ClusterError(f"{error}: found {self.counts}; {self.log[-1500:]}") from None

    @property
    def counts(self):
        """The healthy devices of each resource."""
        found = self._published
        return {resource: sum("taints" not in one for _, one in found[resource]) for resource in COUNTS}

    def given(self, name, of="c", prefix="CLAIMED"):
        """The ids that a container has, once its pod runs."""
        return self.cluster.given(name, prefix, of)

    def health(self, name):
        """The health, and the message, of each device that the pod's container has."""
        found = self.cluster.pod(name)["status"]["containerStatuses"][0].get("allocatedResourcesStatus", ())
        return [(one["health"], one.get("message")) for each in found for one in each.get("resources", ())]

    def touch(self, name):
        """Changes a pod, so that its kubelet looks at it at once: else it does a minute after a failure."""
        patch = {"metadata": {"annotations": {"example.com/touched": str(time.monotonic())}}}
        self.cluster.control.api("PATCH", f"{PODS}/{name}", patch, MERGE)

    def events(self, name):
        """The reasons and messages of a pod's events. Those of an earlier test's pod of this name are still there."""
        found = self.cluster.control.api("GET", EVENTS + self.cluster.pod(name)["metadata"]["uid"])["items"]
        return [(one["reason"], one["message"]) for one in found]

    def until_told(self, name, *texts):
        """Until an event of the pod has one of the texts in it."""

        def told():
            return any(text in one for _, one in self.events(name) for text in texts)

        until(f"event of {name} with {' or '.join(texts)!r}", told)

    def until_run(self, *names, count):
        """Until so many of these pods run."""

        def run():
            phases = [(self.cluster.pod(name) or {}).get("status", {}).get("phase") for name in names]
            return phases.count("Running") == count

        try:
            until(f"{count} pods", run)
        except ClusterError as error:
            told = {name: self.events(name) for name in names if self.cluster.pod(name)}
            raise ClusterError(f"{error}: {told}; {self.log[-1500:]}") from None

    def _write(self):
        configuration = self._configuration()
        for one in configuration["resources"]:
            if front := self._fronts.get(one["name"].rpartition("/")[2]):
                one["front"] = front
        _replace(self._config, configuration)

    def _configuration(self):
        def simulated(name, **options):
            prefix = name.rpartition("/")[2].upper()
            return {"name": name, "driver": "simulated", "options": {"env_prefix": prefix, "release": True, **options}}

        control = self._token.parent / "control"
        claimed = {"ids": IDS, "device_file_prefix": "claimed", "control_file": str(self._faults)}
        return {
            "defaults": {"front": "dra"},
            "dra": {"driver": DRIVER},
            "cluster": {
                "server": f"https://{self.cluster.control.address}",
                "ca": str(control / "pki" / "ca.crt"),
                "token": str(self._token),
                "events": True,
            },
            "resources": [
                simulated(CLAIMED, **claimed),
                {"name": ZERO, "driver": "chardev", "options": {"paths": ["/dev/dpgzero*"]}},
                self._board(AES, CHOSEN),
                self._board(FFT),
                {**simulated(SHARED, ids=["s"]), "shares": 3},
                simulated(MANY, count=COUNTS[MANY]),
            ],
        }

    def _board(self, name, *functions):
        """One function of the board, and others that a claim may choose."""
        ids = [name.rpartition("/")[2], *functions]
        files = [self.folder / id_ for id_ in ids]
        for file in files:
            file.write_text(file.name)
            file.chmod(0o600)
        bitstream, *others = ({"path": str(file), "id": file.name} for file in files)
        options = {
            "boards": [{"id": "b0", "nodes": ["/dev/board"]}],
            "bitstream": bitstream,
            "functions": others,
            "simulated": {"state_dir": str(self.folder / "boards"), "duration": "50ms"},
            "state_dir": str(self.folder / "fpga"),
        }
        return {"name": name, "driver": "fpga", "pool": "boards", "options": options}


def _replace(file, content):
    """At once, because others may read it at any time."""
    new = file.with_name("new")
    new.write_text(json.dumps(content))
    new.rename(file)
