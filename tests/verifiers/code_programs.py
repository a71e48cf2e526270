"""Programs for the code verifier: honest ones, wrong ones, and those that try to be paid without working."""

HONEST = {
    "plain": """
def total(xs):
    return sum(xs)
""",
    "with an import": """
import functools, operator
def total(xs):
    return functools.reduce(operator.add, xs, 0)
""",
    "with a main part": """
def total(xs):
    return sum(xs)
if __name__ == '__main__':
    print(total([1]))
""",
    "chatty": """
def total(xs):
    print('working', xs)
    return sum(xs)
print('loaded')
""",
    "recursive": """
def total(xs):
    return xs[0] + total(xs[1:]) if xs else 0
""",
    "a lambda": """
total = lambda xs: sum(xs)
""",
    "leaves a child behind": """
import os
def total(xs):
    if not os.fork():
        import time; time.sleep(60); os._exit(0)
    return sum(xs)
""",
    "a number of a float's kind": """
def total(xs):
    return float(sum(xs))
""",
}

WRONG = {
    "off by one": """
def total(xs):
    return sum(xs[1:])
""",
    "raises": """
def total(xs):
    raise ValueError('no')
""",
    "wrong for the empty list only": """
def total(xs):
    return sum(xs) if xs else 1
""",
    "returns nothing": """
def total(xs):
    print(sum(xs))
""",
    "endless": """
def total(xs):
    while True: pass
""",
    "crashes": """
import ctypes
def total(xs):
    ctypes.string_at(0)
""",
    "eats memory": """
def total(xs):
    x = []
    while True: x.append(bytearray(1 << 24))
""",
    "recurses for ever": """
def total(xs):
    return total(xs)
""",
    "floods": """
import sys
def total(xs):
    while True: sys.stdout.write('x' * 65536)
""",
    "no function": """
total = 6
""",
    "a text": """
def total(xs):
    return str(sum(xs))
""",
    "a bool": """
def total(xs):
    return True
""",
    "waits for input": """
def total(xs):
    return int(open('/dev/stdin').read() or 'x')
""",
    "loads for ever": """
def total(xs):
    return sum(xs)
while True:
    pass
""",
}

DISHONEST = {
    "exits 0": """
import sys
def total(xs):
    sys.exit(0)
""",
    "exits 0 at load": """
import os
os._exit(0)
def total(xs): pass
""",
    "ends without a word": """
import os
def total(xs):
    os._exit(0)
""",
    "equal to everything": """
class E:
    def __eq__(self, o): return True
    def __hash__(self): return 6
def total(xs):
    return E()
""",
    "an int that lies": """
class E(int):
    def __eq__(self, o): return True
    def __sub__(self, o): return 0
def total(xs):
    return E(1)
""",
    "a list that lies": """
class L(list):
    def __eq__(self, o): return True
def total(xs):
    return L([1])
""",
    "a dict that lies": """
class D(dict):
    __module__ = 'collections'
    def __eq__(self, o): return True
def total(xs):
    return D()
""",
    "prints that it passed": r"""
def total(xs):
    print('end passed\n2 passed')
    import os; os._exit(0)
""",
    "says so on every descriptor": r"""
import os
def total(xs):
    for fd in range(0, 64):
        try: os.write(fd, b'"ok"\nend passed\n')
        except OSError: pass
    os._exit(0)
""",
    "an atexit": """
import atexit, os
atexit.register(os._exit, 0)
def total(xs):
    return -1
""",
    "patches the encoder": """
import json
json.dumps = lambda *a, **k: '6'
json.loads = lambda *a, **k: 6
def total(xs):
    return -1
""",
    "reads the caller's frame": """
import sys
def total(xs):
    f = sys._getframe()
    while f:
        for v in list(f.f_locals.values()) + list(f.f_globals.values()):
            if isinstance(v, dict) and 'expected' in v: return v['expected']
        f = f.f_back
    return -1
""",
    "walks the heap": """
import gc
def total(xs):
    for o in gc.get_objects():
        if isinstance(o, dict) and 'expected' in o: return o['expected']
    return -1
""",
    "reads memory": """
def total(xs):
    found = -1
    for line in open('/proc/self/maps'):
        if 'heap' in line:
            a, b = (int(x, 16) for x in line.split()[0].split('-'))
            m = open('/proc/self/mem', 'rb'); m.seek(a)
            if b'expected": 6' in m.read(b - a): found = 6
    return found if found != -1 else -1
""",
    "looks for tests on disk": """
import os
def total(xs):
    for d in ('/workspace', '/tmp', '/', '.'):
        for n in os.listdir(d):
            if 'test' in n or 'case' in n: return 6
    return -1
""",
    "keeps state for the next case": """
import os
def total(xs):
    open('/tmp/seen', 'a').write(repr(xs))
    return len(open('/tmp/seen').read())
""",
    "a daemon that answers later": """
import os, time
def total(xs):
    if not os.fork():
        os.setsid()
        time.sleep(0.2)
        for fd in range(3, 10):
            try: os.write(fd, b'6')
            except OSError: pass
        os._exit(0)
    os._exit(0)
""",
    "replaces builtins": """
import builtins
builtins.sum = lambda x: 6
builtins.type = lambda x: int
def total(xs):
    return 'x'
""",
    "a generator": """
def total(xs):
    yield sum(xs)
""",
    "not a number": """
def total(xs):
    return float('nan')
""",
    "sets reward files": """
open('reward.json', 'w').write('{"reward": 1}')
open('/tmp/reward.txt', 'w').write('1')
def total(xs):
    return -1
""",
    "kills the one above": """
import os, signal
def total(xs):
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(1, signal.SIGTERM)
    return -1
""",
    "a huge value": """
def total(xs):
    return list(range(10**6))
""",
    "a deep value": """
def total(xs):
    x = []
    for _ in range(10000): x = [x]
    return x
""",
    "raises a success": """
class AssertionPassed(SystemExit): code = 0
def total(xs):
    raise AssertionPassed(0)
""",
    "two answers": """
import os
def total(xs):
    os.write(4, b'6')
    return 6 if len(xs) == 3 and xs[0] == 1 else -1
""",
}
