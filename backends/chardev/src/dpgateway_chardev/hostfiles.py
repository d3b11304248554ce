"""Files of the host other than device nodes: existence, text, owner and mode."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dpgateway import DeviceUnavailable
from dpgateway.sysfs import HOST_DEV, UNTOLD, Mismatch, NoValue, OutsideError, Roots, Test, Trace, WatchedTree
from dpgateway_chardev.given import GivenAccess


class HostFiles:
    """One look at these files, where this process sees them. Paths are the host's."""

    def __init__(self, roots: Roots, host: str, trace: Trace | None = None) -> None:
        self._trace = trace or Trace()
        self._host = host
        places = ((HOST_DEV, roots.dev), ("/proc", roots.proc), ("/sys", roots.sysfs), ("/run/udev", roots.udev))
        self._trees = [WatchedTree(root, place, self._trace) for place, root in places]
        self._trees.append(WatchedTree(host, "", self._trace))

    def sees(self, path: str) -> bool:
        """Whether this process sees the host's files at this path. With ``host: /`` in a pod it sees only its own root;
        kubelets set this variable in all containers (pkg/kubelet/envvars/envvars.go).
        """
        tree, _ = self._tree_of(path)
        return tree.host != "" or self._host != "/" or "KUBERNETES_SERVICE_HOST" not in os.environ

    def lacks(self, path: str, text: Test | None) -> str | None:
        """Why a file is missing or fails the test of its text; None if it passes."""
        tree, inner = self._tree_of(path)
        try:
            real = tree.follow(inner)
        except (FileNotFoundError, NotADirectoryError):
            absent_is_fine = text is not None and text.passes(NoValue.missing())
            return None if absent_is_fine else f"{path} isn't there"
        except OSError as error:
            return f"can't look at {path}: {error.strerror}"
        except OutsideError as error:
            return str(error)
        if text is None:
            return None
        self._trace.note(UNTOLD)  # directories are watched for names, so no event tells of new contents
        value = tree.read(real)
        if text.passes(value):
            return None
        return str(Mismatch(path, value, text))

    def permit(self, id_: str, given: Iterable[GivenAccess]) -> None:
        """Changes owner, group and mode of a device's files. Raises DeviceUnavailable."""
        for access in given:
            try:
                self._permit(access)
            except (OSError, OutsideError) as error:
                why = f"{id_}: can't set owner, group or mode of {access.path}: {error}"
                raise DeviceUnavailable(why) from error

    def _permit(self, access: GivenAccess) -> None:
        tree, inner = self._tree_of(access.path)
        # O_PATH doesn't open the device itself, and from here on no other file can take its place (open(2))
        file = os.open(tree.at(tree.follow(inner)), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            here = f"/proc/self/fd/{file}"  # fchown(2) refuses a file that was opened with O_PATH
            if access.owner is not None or access.group is not None:
                os.chown(
                    here, -1 if access.owner is None else access.owner, -1 if access.group is None else access.group
                )
            if access.mode is not None:
                os.chmod(here, access.mode)  # noqa: PTH101  as above
        finally:
            os.close(file)

    def _tree_of(self, path: str) -> tuple[WatchedTree, str]:
        tree = next(tree for tree in self._trees if path.startswith(f"{tree.host}/"))
        return tree, path.removeprefix(f"{tree.host}/")
