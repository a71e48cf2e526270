"""Programs that try to get out, or to take more than they may. Each prints "held" when every try was refused.

``wall``: what holds it, as ``create(off=...)`` or ``let=`` names it; empty where several do. ``ends``: statuses that count
as held without the word, because the program is meant to be stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = """
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
out = []
def call(number, *args):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def refused(what, tried, *numbers):
    try:
        got = tried()
    except OSError as error:
        if numbers and error.errno not in numbers:
            out.append(f"{what}: refused with {errno.errorcode.get(error.errno)}")
    else:
        out.append(f"{what}: got {got!r}")
def done():
    print("held" if not out else "ESCAPED " + "; ".join(out))
"""


@dataclass(frozen=True)
class Attack:
    name: str
    program: str
    ends: tuple[str, ...] = ()
    let: str = ""  # a system call that is let through when the rule is taken away
    off: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # levels that hold it; empty: all

    @property
    def text(self) -> str:
        return PRELUDE + self.program + "\ndone()\n"


ATTACKS = [
    Attack(
        "fork bomb",
        """
while True:
    os.fork()
""",
        ends=("pids", "memory", "timeout_cpu"),
    ),
    Attack(
        "memory bomb",
        """
x = []
while True:
    x.append(bytearray(1 << 24))
""",
        ends=("memory",),
    ),
    Attack(
        "memory of many processes",
        """
for i in range(12):
    if not os.fork():
        x = bytearray(50 << 20)
        import time; time.sleep(2); os._exit(0)
ends = [os.wait()[1] for i in range(12)]
if not any(ends): out.append('600 MiB')
""",
        ends=("memory",),
    ),
    Attack(
        "memory through files and memfd",
        """
wrote = 0
try:
    fd = os.memfd_create('x')
    while wrote < 1 << 30:
        wrote += os.write(fd, bytes(1 << 20))
    out.append(f'{wrote} bytes')
except OSError:
    pass
""",
        ends=("memory", "disk"),
    ),
    Attack(
        "fill the disk",
        """
f = open('x', 'wb')
while True:
    f.write(bytes(1 << 20))
""",
        ends=("disk", "memory"),
    ),
    Attack(
        "200k files",
        """
for i in range(200_000):
    open(f'f{i}', 'w').close()
out.append('all made')
""",
        ends=("disk", "timeout_cpu"),  # the latter where files lie on a slow disk of the host's
    ),
    Attack(
        "sparse terabyte",
        """
refused('1 TB', lambda: os.truncate(os.open('x', os.O_CREAT | os.O_RDWR), 1 << 40), errno.EFBIG)
""",
    ),
    Attack(
        "write where nothing may be written",
        """
for p in ('/etc/passwd', '/etc/x', '/usr/x', '/usr/bin/python3', '/dev/x', '/x', '/proc/sys/kernel/hostname', '/bin/sh'):
    refused(p, lambda: open(p, 'a').write('x'))
""",
    ),
    Attack(
        "read what is not its",
        """
for p in ('/etc/shadow', '/root/.ssh', '/root/.bashrc', '/proc/1/environ', '/proc/1/root', '/proc/1/mem', '/sys', '/proc/kcore',
          '/proc/kallsyms', '/proc/cmdline', '/proc/meminfo', '/proc/cpuinfo', '/home', '/var', '/run', '/proc/sys', CANARY):
    refused(p, lambda: os.listdir(p) if os.path.isdir(p) else open(p, 'rb').read(10))
""",
    ),
    Attack(
        "secrets in the environment or in memory",
        """
needle = 'sk-' + 'canary'
if needle in str(os.environ): out.append('environ')
for line in open('/proc/self/maps'):
    a, b = (int(x, 16) for x in line.split()[0].split('-'))
    if 'r' in line.split()[1] and '[v' not in line:
        with open('/proc/self/mem', 'rb') as f:
            f.seek(a)
            try: found = f.read(b - a).count((needle + '-0123456789').encode())
            except OSError: continue
        if found: out.append(line)
""",
    ),
    Attack(
        "egress",
        """
for kind, to in ((socket.SOCK_STREAM, ('1.1.1.1', 80)), (socket.SOCK_DGRAM, ('8.8.8.8', 53))):
    def reach():
        s = socket.socket(socket.AF_INET, kind); s.settimeout(2); s.connect(to); s.send(b'x')
    refused(str(to), reach, errno.ENETUNREACH, errno.EACCES, errno.EAFNOSUPPORT)
refused('a name', lambda: socket.getaddrinfo('example.com', 80))
""",
    ),
    Attack(
        "a service of the host",
        """
numbers = errno.ECONNREFUSED, errno.EACCES, errno.EAFNOSUPPORT
refused('loopback', lambda: socket.create_connection(('127.0.0.1', PORT), 2), *numbers)
refused('unix', lambda: socket.socket(socket.AF_UNIX).connect(UNIX))
refused('abstract', lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + ABSTRACT))
refused('datagram', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', UNIX))
""",
    ),
    Attack(
        "socket families",
        """
for family in (16, 17, 38, 40, 44, 21, 31):
    kind = socket.SOCK_RAW if family == 17 else socket.SOCK_DGRAM
    refused(f'family {family}', lambda: socket.socket(family, kind), errno.EAFNOSUPPORT)
refused('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), errno.EPERM, errno.EAFNOSUPPORT)
""",
        let="socket",
    ),
    Attack(
        "other processes' memory",
        """
refused('ptrace', lambda: call(101, 16, 1, 0, 0), errno.EPERM, errno.ESRCH)
refused('readv', lambda: call(310, 1, 0, 0, 0, 0, 0), errno.EPERM)
refused('pidfd_getfd', lambda: call(438, 0, 0, 0), errno.EPERM)
refused('own child', lambda: call(101, 0, 0, 0, 0), errno.EPERM)
""",
        let="ptrace",
    ),
    Attack(
        "kill outside",
        """
import signal
for pid in (HOST_PID, HOST_PID + 1):
    if pid != os.getpid(): refused(f'kill {pid}', lambda: os.kill(pid, 0), errno.ESRCH, errno.EPERM)
for s in (2, 15, 10, 9):
    try: os.kill(1, s)
    except OSError: pass
import time; time.sleep(0.05)
""",
    ),
    Attack(
        "mounts and roots",
        """
refused('mount', lambda: call(165, b'none', b'/tmp', b'tmpfs', 0, b''), errno.EPERM)
refused('umount', lambda: call(166, b'/workspace', 2), errno.EPERM)
refused('chroot', lambda: os.chroot('/tmp'), errno.EPERM)
refused('pivot', lambda: call(155, b'/tmp', b'/tmp'), errno.EPERM)
refused('fsopen', lambda: call(430, b'tmpfs', 0), errno.EPERM)
refused('setattr', lambda: call(442, -100, b'/tmp', 0, 0, 0), errno.EPERM)
refused('open_tree', lambda: call(428, -100, b'/', 1), errno.EPERM)
""",
    ),
    Attack(
        "namespaces",
        """
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000):
    refused(f'unshare {flag:#x}', lambda: call(272, flag), errno.EPERM)
    refused(f'clone {flag:#x}', lambda: call(56, flag | 17, 0, 0, 0, 0), errno.EPERM)
refused('clone3', lambda: call(435, 0, 0), errno.ENOSYS)
refused('setns', lambda: call(308, 0, 0), errno.EPERM)
""",
    ),
    Attack(
        "more rights",
        r"""
import subprocess
if os.getuid(): refused('setuid', lambda: os.setuid(0), errno.EPERM)
for tool in ('/bin/su', '/bin/mount', '/usr/bin/newuidmap', '/usr/bin/passwd'):
    if os.path.exists(tool):
        r = subprocess.run([tool, '-h'], capture_output=True)
status = open('/proc/self/status').read()
for line in status.splitlines():
    if line.startswith('Cap') and 'Bnd' not in line and int(line.split()[1], 16): out.append(line)
if 'NoNewPrivs:\t1' not in status: out.append('new privileges')
""",
    ),
    Attack(
        "rights that a program could be given",
        r"""
for line in open('/proc/self/status'):
    if line.startswith('CapBnd') and int(line.split()[1], 16): out.append(line)
""",
        only=("T2", "T2u"),  # a plain user cannot lower the bound; no_new_privs holds it
    ),
    Attack(
        "keys, bpf, perf, io_uring",
        """
for n, name in ((248, 'add_key'), (250, 'keyctl'), (321, 'bpf'), (298, 'perf'), (323, 'userfaultfd'),
                (425, 'io_uring'), (447, 'memfd_secret')):
    refused(name, lambda: call(n, 0, 0, 0, 0, 0), errno.EPERM)
""",
    ),
    Attack(
        "the machine",
        """
for n, name in ((246, 'kexec'), (175, 'init_module'), (313, 'finit_module'), (167, 'swapon'), (163, 'acct'),
                (103, 'syslog'), (172, 'iopl')):
    refused(name, lambda: call(n, 0, 0, 0, 0), errno.EPERM)
refused('reboot', lambda: call(169, 0, 0, 0, 0), errno.EPERM)
""",
    ),
    Attack(
        "the clock",
        """
import time
refused('settime', lambda: time.clock_settime(time.CLOCK_REALTIME, 1), errno.EPERM)
refused('adjtimex', lambda: call(159, 0), errno.EPERM)
""",
        let="adjtimex",
    ),
    Attack(
        "a core dump",
        """
os.abort()
""",
        ends=("signal",),
    ),
    Attack(
        "devices",
        """
for d in ('mem', 'kmsg', 'kvm', 'loop0', 'fuse', 'vda', 'tty', 'console', 'ptmx'):
    refused(d, lambda: open('/dev/' + d, 'rb'))
refused('mknod', lambda: os.mknod('n', 0o20666, os.makedev(1, 1)), errno.EPERM)
""",
    ),
    Attack(
        "files by handle",
        """
refused('open_by_handle_at', lambda: call(304, 0, 0, 0), errno.EPERM)
refused('name_to_handle_at', lambda: call(303, -100, b'/', 0, 0, 0), errno.EPERM)
""",
        let="open_by_handle_at",
    ),
    Attack(
        "inherited descriptors",
        """
for fd in os.listdir('/proc/self/fd'):
    if int(fd) > 2:
        try: out.append(os.readlink('/proc/self/fd/' + fd))
        except OSError: pass
""",
    ),
    Attack(
        "all descriptors",
        """
fds = []
refused('1000 descriptors', lambda: [fds.append(os.dup(0)) for _ in range(1000)], errno.EMFILE)
[os.close(f) for f in fds]
""",
    ),
    Attack(
        "gigabytes of output",
        """
while True:
    os.write(1, bytes(1 << 20))
""",
        ends=("output_limit",),
    ),
    Attack(
        "endless error line",
        """
while True:
    os.write(2, b'x' * 4096)
""",
        ends=("output_limit",),
    ),
    Attack(
        "deaf to every signal",
        """
import signal
for s in range(1, 32):
    try: signal.signal(s, signal.SIG_IGN)
    except OSError: pass
while True: pass
""",
        ends=("timeout_cpu",),
    ),
    Attack(
        "sleeps",
        """
import time; time.sleep(1000)
""",
        ends=("timeout_wall",),
    ),
    Attack(
        "spins in children",
        """
for i in range(3): os.fork()
while True: pass
""",
        ends=("timeout_cpu",),
    ),
    Attack(
        "a daemon",
        """
if not os.fork():
    os.setsid()
    if not os.fork():
        import time; time.sleep(1000)
    os._exit(0)
""",
    ),
    Attack(
        "zombies and threads",
        """
import threading
try:
    for i in range(5000):
        threading.Thread(target=lambda: __import__('time').sleep(100), daemon=True).start()
    out.append('5000 threads')
except RuntimeError: pass
""",
        ends=("pids", "memory"),
    ),
    Attack(
        "bytes that are no text",
        r"""
os.write(1, bytes(range(256)) + b'\x1b[2J\x00')
print()
""",
    ),
    Attack(
        "endless recursion",
        """
sys.setrecursionlimit(10**9)
f = lambda: f()
f()
""",
        ends=("timeout_cpu", "signal", "memory", "nonzero"),
    ),
    Attack(
        "its own limits",
        """
import resource
for r in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
    try: resource.setrlimit(r, (resource.RLIM_INFINITY,) * 2); out.append(f'limit {r}')
    except (OSError, ValueError): pass
refused('oom', lambda: open('/proc/self/oom_score_adj', 'w').write('-1000') and open('/proc/self/oom_score_adj', 'w').close())
refused('nice', lambda: os.nice(-5), errno.EPERM, errno.EACCES)
refused('rt', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), errno.EPERM)
""",
    ),
    Attack(
        "left-over shared memory",
        """
for n, name in ((29, 'shmget'), (64, 'semget'), (68, 'msgget'), (240, 'mq_open')):
    refused(name, lambda: call(n, 0x1234, 4096, 0o1666, 0), errno.EPERM)
""",
        let="shmget",
    ),
    Attack(
        "a fifo that nobody writes",
        """
os.mkfifo('p')
open('p')
""",
        ends=("timeout_wall",),
    ),
    Attack(
        "control groups",
        """
for p in ('/sys/fs/cgroup', '/proc/1/cgroup'):
    refused(p, lambda: os.listdir(p) if os.path.isdir(p) else open(p).read())
""",
    ),
    Attack(
        "a terminal's input",
        """
import fcntl
refused('TIOCSTI', lambda: fcntl.ioctl(0, 0x5412, b'x'), errno.EPERM)
refused('TIOCLINUX', lambda: fcntl.ioctl(0, 0x541C, b'x'), errno.EPERM)
""",
        let="ioctl",
    ),
    Attack(
        "the host's name",
        "if socket.gethostname() != 'sandbox': out.append(socket.gethostname())",
        only=("T2", "T2u"),
    ),
    Attack(
        "that a file of the host exists",
        "refused('stat', lambda: os.stat(CANARY))",
        only=("T2", "T2u"),  # Landlock does not cover it
    ),
    Attack(
        "the host's load",
        """
for p in ('/proc/loadavg', '/proc/version', '/proc/mounts2', '/sys/class'):
    refused(p, lambda: open(p).read())
""",
    ),
    Attack(
        "out of the root",
        """
for _ in range(40): os.chdir('..')
try: names = set(os.listdir('.'))
except PermissionError: names = set()
if names & {'store', 'layers', 'home', 'var'}: out.append(str(names))
""",
    ),
    Attack(
        "its own way into /proc",
        """
for p in ('/proc/self/root/../../etc/shadow', '/proc/thread-self/cwd/../../../../etc/shadow', '/proc/1/cwd', '/proc/1/fd'):
    refused(p, lambda: os.listdir(p) if p.startswith('/proc/1') else open(p).read())
""",
    ),
    Attack(
        "watches and queues of the whole host",
        """
refused('inotify', lambda: call(294, 0), errno.EPERM)
refused('io_setup', lambda: call(206, 128, ctypes.create_string_buffer(8)), errno.EPERM)
""",
        let="inotify_init1",
    ),
    Attack(
        "the limits of others",
        """
import resource
refused('prlimit', lambda: resource.prlimit(1, resource.RLIMIT_AS, (1, 1)), errno.EPERM, errno.ESRCH)
refused('parent', lambda: resource.prlimit(os.getppid() or 1, resource.RLIMIT_NOFILE, (5, 5)), errno.EPERM, errno.ESRCH)
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
""",
    ),
    Attack(
        "memory in attributes of files",
        """
os.mkdir('d')
refused('acl', lambda: os.setxattr('d', 'user.x', b'x' * 1000), errno.EOPNOTSUPP)
""",
        let="setxattr",
    ),
    Attack("shuts the workspace", "os.chmod('.', 0)"),
    Attack(
        "modes, times and turns of what is not its",
        """
def touch(path): os.utime(path, (1, 1))
for p in (OWN, OWN + '/file'):
    refused('chmod ' + p, lambda: os.chmod(p, 0))
    refused('utime ' + p, lambda: touch(p))
    refused('chown ' + p, lambda: os.chown(p, os.getuid(), os.getgid()))
os.symlink(OWN + '/file', 'link')
refused('link', lambda: os.chmod('link', 0))
refused('hard link', lambda: (os.link(OWN + '/file', 'hard'), os.chmod('hard', 0)))
refused('kill', lambda: os.kill(VICTIM, 9), errno.EPERM, errno.ESRCH)
refused('renice', lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19), errno.EPERM, errno.ESRCH)
refused('affinity', lambda: os.sched_setaffinity(VICTIM, {0}), errno.EPERM, errno.ESRCH)
for p in ('environ', 'cmdline', 'mem', 'fd', 'root'):
    refused(p, lambda: os.listdir(f'/proc/{VICTIM}/fd') if p == 'fd' else open(f'/proc/{VICTIM}/{p}', 'rb').read(1))
""",
    ),
    Attack(
        "CPU time in turns, behind a screen of dying orphans",
        """
import time
for _ in range(2):
    if not os.fork():
        while True:
            if os.fork(): time.sleep(0.02); os._exit(0)
            os.setsid()
for _ in range(30):
    pid = os.fork()
    if not pid:
        end = time.process_time() + 0.4
        while time.process_time() < end: pass
        os._exit(0)
    os.waitpid(pid, 0)
out.append('12 s of CPU time')
""",
        ends=("timeout_cpu",),
    ),
]
