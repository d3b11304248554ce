"""The plugin watcher: which sockets there are in plugins_registry (pkg/kubelet/pluginmanager/pluginwatcher, 1.37).

It reacts to the creation and the removal of a socket only. A rename to a name is a creation; a rename away from a name
goes unnoticed, so the plugin stays, and a rename back is another creation (seen on 1.37). A name that begins with a dot
is ignored, as is all below a directory with such a name.
"""

import contextlib
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from asyncinotify import Inotify, Mask

_MASK = Mask.CREATE | Mask.MOVED_TO | Mask.DELETE


@dataclass(eq=False)
class PluginWatcher:
    """Sockets by path, each with a number that is new for each creation. `changed` is called after a change."""

    folder: Path
    changed: Callable[[], None]
    seen: dict[Path, int] = field(default_factory=dict)
    _count: int = 0

    async def run(self) -> None:
        """Looks at what is there, then watches; never returns."""
        with Inotify() as inotify:
            self._enter(inotify, self.folder)
            async for event in inotify:
                if event.path is None or event.watch is None:
                    continue
                path = Path(event.path)
                if Mask.DELETE in event.mask:
                    if self.seen.pop(path, None) is not None:
                        self.changed()
                else:
                    self._enter(inotify, path)

    def _enter(self, inotify: Inotify, path: Path) -> None:
        """A path that is there now: a socket, or a directory with sockets."""
        inner = path.relative_to(self.folder)
        if any(part.startswith(".") for part in inner.parts):
            return
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                inotify.add_watch(path, _MASK)
                for below in sorted(path.iterdir()):
                    self._enter(inotify, below)
            elif stat.S_ISSOCK(mode):
                self._count += 1
                self.seen[path] = self._count
                self.changed()
