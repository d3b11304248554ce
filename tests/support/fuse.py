"""A file system whose files are functions, in the raw protocol of /dev/fuse (include/uapi/linux/fuse.h).

Each read, write and ioctl runs on a thread of its own, so one that blocks holds up no other, as in sysfs. Files are
opened for direct, parallel writes; the kernel caches nothing.
"""

import ctypes
import errno
import os
import stat
import struct
import threading
from contextlib import contextmanager, suppress
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_HEADER = struct.Struct("=IIQQIIIHH")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_MNT_FORCE, _MNT_DETACH = 1, 2
_DIRECT, _PARALLEL = 1, 64
LOOKUP, FORGET, GETATTR, SETATTR, READLINK, MKDIR, RMDIR, OPEN, READ, WRITE = 1, 2, 3, 4, 5, 9, 11, 14, 15, 16
RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, IOCTL, BATCH_FORGET = 18, 26, 27, 28, 29, 36, 39, 42
_BLOCKING = {READ, WRITE, IOCTL}


class File:
    """A file; a test overrides what it needs. What a method raises as OSError is what the caller gets."""

    opens_slowly = False
    """Whether its opening, too, has a thread of its own."""

    def open(self):
        """Somebody opens it."""

    def close(self):
        """Nobody of those who opened it together has it any more."""

    def read(self):
        raise OSError(errno.EIO, "")

    def write(self, text):
        raise OSError(errno.EIO, "")

    def ioctl(self, command, argument, pid):
        raise OSError(errno.ENOTTY, "")


class Text(File):
    """A file that says what it was made with, or what a function says now."""

    def __init__(self, text):
        self._text = text

    def read(self):
        return self._text() if callable(self._text) else self._text


class Link(str):
    """A symbolic link to this path."""

    __slots__ = ()


class Directory(dict[str, Any]):
    """Files, links and directories, by their names."""

    def make(self, path, what):
        """Puts something at a path, with the directories above it."""
        here = self
        *above, name = path.strip("/").split("/")
        for one in above:
            here = here.setdefault(one, Directory())
        here[name] = what

    def mkdir(self, name):
        raise OSError(errno.EPERM, "")

    def rmdir(self, name):
        raise OSError(errno.EPERM, "")


class _Server:
    def __init__(self, root):
        self._nodes = {1: root}
        self._numbers = {id(root): 1}
        self.bugs = []
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._writing = threading.Lock()  # a call that hung may answer when another file has the descriptor's number

    def serve(self):
        while True:
            try:
                request = os.read(self.device, 1 << 18)
            except OSError:  # unmounted
                return
            _, opcode, unique, node, _, _, pid, _, _ = _HEADER.unpack_from(request)
            body = request[_HEADER.size :]
            if opcode in _BLOCKING or (opcode == OPEN and self._nodes[node].opens_slowly):
                threading.Thread(target=self._answer, args=(opcode, unique, node, pid, body), daemon=True).start()
            elif opcode not in {FORGET, BATCH_FORGET, INTERRUPT}:
                self._answer(opcode, unique, node, pid, body)

    def _answer(self, opcode, unique, number, pid, body):
        try:
            error, answer = 0, self._do(opcode, self._nodes.get(number), pid, body)
        except OSError as raised:
            error, answer = -(raised.errno or errno.EIO), b""
        except Exception as raised:  # a bug here must not hang who asks
            self.bugs.append(raised)
            error, answer = -errno.EREMOTEIO, b""
        with suppress(OSError), self._writing:  # unmounted, or the caller was killed
            os.write(self.device, struct.pack("=IiQ", 16 + len(answer), error, unique) + answer)

    def close(self):
        with self._writing:
            os.close(self.device)
            self.device = -1

    def _do(self, opcode, node, pid, body):  # noqa: C901, PLR0911, PLR0912  one for each opcode
        match opcode:
            case 26:  # INIT
                return struct.pack("=IIIIHHIIHHIIIIIIII", 7, 31, 0, 0, 64, 48, 1 << 17, 1, *[0] * 10)
            case 1:  # LOOKUP
                return self._entry(_found(node, body))
            case 3 | 4:  # GETATTR, SETATTR
                return struct.pack("=QII", 0, 0, 0) + self._attributes(node)
            case 5:  # READLINK
                return str(node).encode()
            case 9:  # MKDIR
                node.mkdir(_name(body[8:]))
                return self._entry(_found(node, body[8:]))
            case 11:  # RMDIR
                node.rmdir(_name(body))
                return b""
            case 14:  # OPEN
                node.open()
                return struct.pack("=QIi", 0, _DIRECT | _PARALLEL, 0)
            case 27:  # OPENDIR
                return struct.pack("=QIi", 0, 0, 0)
            case 15:  # READ
                offset, size = struct.unpack_from("=QI", body, 8)
                return node.read().encode()[offset : offset + size]
            case 16:  # WRITE
                (size,) = struct.unpack_from("=I", body, 16)
                return struct.pack("=II", node.write(body[40 : 40 + size].decode()) or size, 0)
            case 28:  # READDIR
                return b"" if struct.unpack_from("=Q", body, 8)[0] else self._listing(node)
            case 39:  # IOCTL
                _, _, command, argument = struct.unpack_from("=QIIQ", body)
                return struct.pack("=iIII", node.ioctl(command, argument, pid) or 0, 0, 0, 0)
            case 18:  # RELEASE
                node.close()
                return b""
            case 29:  # RELEASEDIR
                return b""
            case _:
                raise OSError(errno.ENOSYS, "")

    def _number(self, node):
        number = self._numbers.setdefault(id(node), len(self._numbers) + 1)
        self._nodes[number] = node  # which also keeps its id from being another one's
        return number

    def _entry(self, node):
        return struct.pack("=QQQQII", self._number(node), 0, 0, 0, 0, 0) + self._attributes(node)

    def _attributes(self, node):
        kind = _kind(node)
        return _ATTR.pack(self._number(node), 4096, 0, 0, 0, 0, 0, 0, 0, kind | 0o755, 1, 0, 0, 0, 4096, 0)

    def _listing(self, node):
        listing = b""
        for offset, (name, inner) in enumerate(node.items(), 1):
            raw = name.encode()
            listing += struct.pack("=QQII", self._number(inner), offset, len(raw), _kind(inner) >> 12)
            listing += raw + b"\0" * (-len(raw) % 8)
        return listing


def _kind(node):
    return stat.S_IFDIR if isinstance(node, Directory) else stat.S_IFLNK if isinstance(node, Link) else stat.S_IFREG


def _name(body):
    return body.partition(b"\0")[0].decode()


def _found(node, body):
    try:
        return node[_name(body)]
    except KeyError:
        raise OSError(errno.ENOENT, "") from None


@contextmanager
def mounted(root, path):
    """The directory is at ``path`` until the block ends; calls that still hang fail then (ENOTCONN)."""
    server = _Server(root)
    options = f"fd={server.device},rootmode=40000,user_id=0,group_id=0"
    if _LIBC.mount(b"fake", str(path).encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        _LIBC.umount2(str(path).encode(), _MNT_FORCE)  # aborts what hangs (fs/fuse/inode.c, fuse_umount_begin)
        _LIBC.umount2(str(path).encode(), _MNT_DETACH)
        thread.join(20)
        server.close()
    assert server.bugs == []
