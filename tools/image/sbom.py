"""The image's SBOM in SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/)."""

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, order=True)
class Part:
    """One package. `kind` is its package URL's type, and namespace if any: https://github.com/package-url/purl-spec."""

    kind: str
    name: str
    version: str
    architecture: str = ""

    @property
    def purl(self) -> str:
        architecture = f"?arch={self.architecture}" if self.architecture else ""
        return f"pkg:{self.kind}/{quote(self.name)}@{quote(self.version, safe='')}{architecture}"


def document(parts: Iterable[Part]) -> dict[str, Any]:
    listed = sorted(parts)
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(part.purl for part in listed))
    packages = [_package(number, part) for number, part in enumerate(listed)]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "dpgateway",
        "documentNamespace": f"urn:uuid:{namespace}",
        "creationInfo": {"created": f"{made:%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: dpgateway-tools-image"]},
        "packages": packages,
        "relationships": [_described(package["SPDXID"]) for package in packages],
    }


def _package(number: int, part: Part) -> dict[str, Any]:
    purl = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}
    return {
        "SPDXID": f"SPDXRef-Package-{number}",
        "name": part.name,
        "versionInfo": part.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "externalRefs": [purl],
    }


def _described(identity: str) -> dict[str, str]:
    described = {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES"}
    return {**described, "relatedSpdxElement": identity}
