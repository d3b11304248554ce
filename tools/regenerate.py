"""Generates the protobuf code from protos/, for the gateway (protobuf) and the simulator (betterproto).

``regenerate.py`` writes the code; ``regenerate.py --check`` writes nothing and exits 1 when the checked-in code is
different. Needs the development dependencies (grpcio-tools, betterproto[compiler]) at the pinned versions.
"""

from __future__ import annotations

import argparse
import importlib.resources
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"podresources": "node", "cri": "node", "dra": "dra", "pluginregistration": "registry"}
"""The package of each folder of protos; the device-plugin front's if it isn't named."""
FOLDERS = {package: Path(f"src/dpgateway/{package}/wire") for package in ("deviceplugin", "node", "dra", "registry")}
SIMULATOR = Path("src/dpgateway_simulator/wire")  # only its sub-folders contain generated code


def sources() -> dict[str, tuple[Path, Path]]:
    """Each proto and the folder of its generated code, by the proto's name in the descriptor pool.

    The names are unique to us, so that they never collide with reflection's or with a driver's own Kubernetes stubs. A
    folder's ``api.proto`` is named after the folder.
    """
    protos = sorted((ROOT / "protos").glob("*/*.proto"))
    named = {path.parent.name if path.stem == "api" else path.stem: path for path in protos}
    return {name: (path, FOLDERS[PACKAGES.get(path.parent.name, "deviceplugin")]) for name, path in named.items()}


SOURCES = sources()
POOL_IMPORT = "from google.protobuf import descriptor_pool as _descriptor_pool"
POOL_USE = "_descriptor_pool.Default()"


def protoc(folder: Path, *arguments: str) -> None:
    included = importlib.resources.files("grpc_tools") / "_proto"
    # betterproto's protoc plugin is installed beside the interpreter.
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{included}", *arguments]
    done = subprocess.run(command, check=False, env={"PATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")


def generate_gateway(protos: Path, out: Path) -> None:
    files = [str(protos / f"dpgateway/wire/{name}.proto") for name in SOURCES]
    protoc(protos, f"--python_out={out}", f"--pyi_out={out}", *files)

    # Messages in the default pool would collide with a driver's own stubs of the same Kubernetes packages.
    for name, (_, folder) in SOURCES.items():
        module = out / f"dpgateway/wire/{name}_pb2.py"
        text = module.read_text()
        if POOL_IMPORT not in text or POOL_USE not in text:
            raise SystemExit(f"{module.name}: the generated code no longer names the default pool as this tool expects")
        package = ".".join(folder.relative_to("src").parts)
        text = text.replace(POOL_IMPORT, f"from {package} import pool as _pool").replace(POOL_USE, "_pool.POOL")
        module.write_text(text)


def generate_simulator(protos: Path, out: Path) -> None:
    out.mkdir(parents=True)
    files = [str(protos / f"dpgateway/wire/{name}.proto") for name in SOURCES]
    protoc(protos, f"--python_betterproto_out={out}", *files)


def generated(scratch: Path) -> dict[Path, str]:
    """The text of every generated file, by its path in the repository."""
    protos = scratch / "protos"
    for name, (source, _) in SOURCES.items():
        copy = protos / f"dpgateway/wire/{name}.proto"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(source.read_text())
    gateway, simulator = scratch / "gateway", scratch / "simulator"
    gateway.mkdir()
    generate_gateway(protos, gateway)
    generate_simulator(protos, simulator)
    made = sorted((gateway / "dpgateway/wire").glob("*_pb2.py*"))
    files = {SOURCES[p.name.partition("_pb2")[0]][1] / p.name: p.read_text() for p in made}
    files |= {SIMULATOR / p.relative_to(simulator): p.read_text() for p in sorted(simulator.glob("*/**/*.py"))}
    return files


def stale(files: dict[Path, str]) -> list[str]:
    found = [str(p) for p, text in files.items() if not (ROOT / p).exists() or (ROOT / p).read_text() != text]
    there = {p.relative_to(ROOT) for p in (ROOT / SIMULATOR).glob("*/**/*.py")}
    there |= {p.relative_to(ROOT) for folder in FOLDERS.values() for p in (ROOT / folder).glob("*_pb2.py*")}
    return found + [f"{path} (no proto makes it)" for path in sorted(there - set(files))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the checked-in code is stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        files = generated(Path(scratch))
    if check:
        wrong = stale(files)
        for name in wrong:
            print(f"stale: {name}; run `make regenerate` and commit", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in files.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
    print(f"{len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
