"""The file system of a sandbox: a template that all share, and what each has of its own.

Outer root of a sandbox (its pid 1 sees it, programs never do)::

    /root      what programs see: the template, read-only, with /proc, /dev, /tmp and /workspace mounted on it
    /store     its own disk, a tmpfs of bounded size: layers of the workspace, /tmp, /dev/shm
    /layers    layers of the sandboxes it was forked from, read-only
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from .kernel import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, bind, mount, pivot_root_here, unmount

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
DEVICES = ("null", "zero", "full", "random", "urandom")
ETC = {
    "passwd": "root:x:0:0:root:/:/bin/false\nuser:x:1000:1000:user:/workspace:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
ETC_OF_HOST = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
OPTIONS = MS_NOSUID | MS_NODEV


def make_template(place: str, readable: list[str]) -> None:
    """Below ``place``: ``root``, the part that all sandboxes share, and the empty ``slot`` and ``stores``. In our own mounts.

    ``readable``: directories of the host that programs may read, at the same path (an interpreter, a prepared base).
    """
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", place, "tmpfs", OPTIONS, "mode=755,size=1m,nr_inodes=4096")
    root = place + "/root"
    for name in ("root", "slot", "stores"):
        os.mkdir(f"{place}/{name}", 0o755)
    mount("tmpfs", root, "tmpfs", OPTIONS, "mode=755,size=1m,nr_inodes=4096")
    for name in ("proc", "dev", "tmp", "workspace", "etc", "dev/shm"):
        os.mkdir(f"{root}/{name}", 0o755)
    for name in SYSTEM:
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), f"{root}/{name}")
        elif os.path.isdir("/" + name):
            os.mkdir(f"{root}/{name}", 0o755)
            bind("/" + name, f"{root}/{name}")
    for name, text in ETC.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)
    for name in ETC_OF_HOST:
        if os.path.isdir("/etc/" + name):
            os.mkdir(f"{root}/etc/{name}", 0o755)
            bind("/etc/" + name, f"{root}/etc/{name}")
        elif os.path.isfile("/etc/" + name):
            with open("/etc/" + name, "rb") as source, open(f"{root}/etc/{name}", "wb") as copy:
                copy.write(source.read())
    for name in DEVICES:
        open(f"{root}/dev/{name}", "w").close()
        bind("/dev/" + name, f"{root}/dev/{name}", writable=True, devices=True)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    for path in readable:
        if not path.startswith("/usr/") and not os.path.exists(root + path):
            os.makedirs(root + path, 0o755)
            bind(path, root + path)
    mount("none", root, flags=MS_RDONLY | OPTIONS | 32 | 4096)  # a remount of the bind: nothing more is written here


def interpreter() -> list[str]:
    """The directories that this very interpreter needs."""
    return sorted({os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)})


def make_store(place: str, name: str, mib: int, files: int, owner: int) -> str:
    """The disk of one sandbox, mounted among ours so that forks can reach its layers."""
    store = f"{place}/stores/{name}"
    os.mkdir(store, 0o755)
    mount("tmpfs", store, "tmpfs", OPTIONS, f"mode=711,size={mib}m,nr_inodes={files},uid={owner},gid={owner}")
    return store


def drop_store(place: str, name: str) -> None:
    """Unmounts it; forks that still look at its layers keep them."""
    unmount(f"{place}/stores/{name}")
    os.rmdir(f"{place}/stores/{name}")


def enter(place: str, name: str, lowers: list[str], user: int, readable: list[str]) -> None:
    """In a new mount namespace: builds the outer root and moves into it. ``lowers``: layers of other stores, top first."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    slot = place + "/slot"
    mount("tmpfs", slot, "tmpfs", OPTIONS, "mode=711,size=64k,nr_inodes=1200")
    for part in ("root", "store", "layers"):
        os.mkdir(f"{slot}/{part}", 0o711)
    mount(place + "/root", slot + "/root", flags=4096 | MS_REC)
    mount(f"{place}/stores/{name}", slot + "/store", flags=4096)
    for i, layer in enumerate(lowers):
        os.mkdir(f"{slot}/layers/{i}")
        mount(f"{place}/stores/{layer}", f"{slot}/layers/{i}", flags=4096)
    root, store = slot + "/root", slot + "/store"
    for part, target in (("tmp", "/tmp"), ("shm", "/dev/shm")):
        os.mkdir(f"{store}/{part}")
        os.chmod(f"{store}/{part}", 0o1777)
        mount(f"{store}/{part}", root + target, flags=4096)
    for path in readable:
        if path.startswith(("/tmp/", "/dev/shm/")):  # the sandbox's own now lies over it
            os.makedirs(root + path)
            mount(f"{place}/root{path}", root + path, flags=4096 | MS_REC)
    mount("proc", root + "/proc", "proc", OPTIONS | MS_NOEXEC, "hidepid=2,subset=pid")
    os.mkdir(store + "/empty", 0o755)
    pivot_root_here(slot)
    lay(user, 0, [f"/layers/{i}" for i in range(len(lowers))] or ["/store/empty"])


def lay(user: int, number: int, lowers: list[str]) -> None:
    """Mounts the workspace: a new upper layer over ``lowers``, top first. Whatever was mounted there before must be gone."""
    upper, work = f"/store/{number}", f"/store/{number}.work"
    for part in (upper, work):
        os.mkdir(part, 0o700)
    os.chown(upper, user, user)
    data = f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={work},userxattr"
    mount("overlay", "/root/workspace", "overlay", OPTIONS, data)


def copy_layer(source: str, target: str, *, attributes: bool = True) -> None:
    """A layer with all that an overlay keeps in it: owners, modes, times, hard links, whiteouts and extended attributes."""
    seen: dict[int, str] = {}
    os.mkdir(target, 0o700)
    _copy_status(source, target, attributes)
    for here, directories, files in os.walk(source):
        there = target + here[len(source) :]
        for name in directories:
            path, copy = f"{here}/{name}", f"{there}/{name}"
            if os.path.islink(path):
                files.append(name)
            else:
                os.mkdir(copy, 0o700)
        for name in files:
            path, copy = f"{here}/{name}", f"{there}/{name}"
            status = os.lstat(path)
            if status.st_nlink > 1 and status.st_ino in seen:
                os.link(seen[status.st_ino], copy, follow_symlinks=False)
                continue
            seen[status.st_ino] = copy
            _copy_file(path, copy, status, attributes)
    for here, directories, _ in os.walk(source, topdown=False):
        for name in directories:
            if not os.path.islink(f"{here}/{name}"):
                _copy_status(f"{here}/{name}", target + here[len(source) :] + "/" + name, attributes)
    _copy_status(source, target, attributes)


def _copy_file(path: str, copy: str, status: os.stat_result, attributes: bool) -> None:
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(path), copy)
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb", buffering=0) as source, open(copy, "xb", buffering=0) as target:
            left = status.st_size
            while left and (done := os.sendfile(target.fileno(), source.fileno(), None, left)):
                left -= done
    else:  # a whiteout (device 0:0), a fifo, a socket
        os.mknod(copy, status.st_mode, status.st_rdev)
    _copy_status(path, copy, attributes)


def _copy_status(path: str, copy: str, attributes: bool) -> None:
    status = os.lstat(path)
    os.chown(copy, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(copy, stat.S_IMODE(status.st_mode))
        for name in os.listxattr(path) if attributes else ():
            os.setxattr(copy, name, os.getxattr(path, name))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def remove(place: str) -> None:
    """A whole tree, as far as it can be. Not by ``shutil``: every fork would pay for what that loads."""
    for at, directories, files in os.walk(place, topdown=False):
        for name in (*files, *directories):
            path = f"{at}/{name}"
            with contextlib.suppress(OSError):
                (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
    with contextlib.suppress(OSError):
        os.rmdir(place)
