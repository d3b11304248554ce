"""The least DRA driver beside the gateway: one device, and its answers are as a test wants them."""

from concurrent.futures import ThreadPoolExecutor

import grpc

from dpgateway.dra.wire import dra_pb2
from dpgateway.registry.wire import pluginregistration_pb2 as registration
from tests.cluster.machine.box import until

NAME = "second.example.com"
GROUP = "/apis/resource.k8s.io/v1"
FOLDER = "/var/lib/kubelet"


class SecondDriver:
    """It runs in the process of the tests, with its sockets in the kubelet's directories."""

    def __init__(self, cluster, node):
        """`node`: the machine it is on."""
        self._cluster, self._api = cluster, cluster.control.api
        self._node, self._root = node.name, node.folder / "kubelet"
        self.error = ""
        """What Prepare answers, unless empty."""
        self.prepared = set()
        """Uids of claims."""
        self._registered = False

    @property
    def request(self):
        """Of a claim."""
        return {"name": "second", "exactly": {"deviceClassName": NAME}}

    def __enter__(self):
        (self._root / "plugins" / NAME).mkdir(parents=True, exist_ok=True)
        calls = {
            "pluginregistration.Registration": {
                "GetInfo": (self._info, registration.InfoRequest),
                "NotifyRegistrationStatus": (self._notify, registration.RegistrationStatus),
            },
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin": {
                "NodePrepareResources": (self._prepare, dra_pb2.NodePrepareResourcesRequest),
                "NodeUnprepareResources": (self._unprepare, dra_pb2.NodeUnprepareResourcesRequest),
            },
        }
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers([_handlers(*one) for one in calls.items()])
        self._server.add_insecure_port(f"unix:{self._root}/plugins/{NAME}/dra.sock")
        self._server.add_insecure_port(f"unix:{self._root}/plugins_registry/{NAME}.sock")
        self._server.start()
        until("registration of the second driver", lambda: self._registered)
        selector = {"cel": {"expression": f'device.driver == "{NAME}"'}}
        self._api("POST", f"{GROUP}/deviceclasses", {"metadata": {"name": NAME}, "spec": {"selectors": [selector]}})
        pool = {"name": self._node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": NAME, "nodeName": self._node, "pool": pool, "devices": [{"name": "only"}]}
        self._api("POST", f"{GROUP}/resourceslices", {"metadata": {"name": NAME}, "spec": spec})
        return self

    def __exit__(self, *_):
        try:
            # Without this driver pods with claims for it, such as those of a test that failed, couldn't end.
            self._cluster.until_gone(self._cluster.delete())
        finally:
            for path in f"deviceclasses/{NAME}", f"resourceslices/{NAME}":
                self._api("DELETE", f"{GROUP}/{path}")
            self._server.stop(None).wait()

    def _info(self, _request, _context):
        endpoint = f"{FOLDER}/plugins/{NAME}/dra.sock"
        return registration.PluginInfo(
            type="DRAPlugin", name=NAME, endpoint=endpoint, supported_versions=["v1.DRAPlugin"]
        )

    def _notify(self, request, _context):
        self._registered = request.plugin_registered
        return registration.RegistrationStatusResponse()

    def _prepare(self, request, _context):
        answer = dra_pb2.NodePrepareResourcesResponse()
        for claim in request.claims:
            one = answer.claims[claim.uid]
            if self.error:
                one.error = self.error
                continue
            self.prepared.add(claim.uid)
            one.devices.add(request_names=["second"], pool_name=self._node, device_name="only")
        return answer

    def _unprepare(self, request, _context):
        answer = dra_pb2.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self.prepared.discard(claim.uid)
            answer.claims[claim.uid].error = ""
        return answer


def _handlers(service, calls):
    made = {
        name: grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=request.FromString, response_serializer=lambda one: one.SerializeToString()
        )
        for name, (call, request) in calls.items()
    }
    return grpc.method_handlers_generic_handler(service, made)
