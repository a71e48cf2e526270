"""Killable worker processes for what may never end: symbolic mathematics, regular expressions, a user's reward function.

A worker is a fresh interpreter that imports only what its targets need. Calls go to it pickled, results come back as JSON:
nothing that a worker says is ever unpickled. A call that passes its deadline dies with its worker, which is replaced; a worker
also dies with its parent, however that ends. The deadline counts from when the target is imported and its arguments are read,
in seconds of the worker's own CPU while it is busy, so a starved host does not turn a slow answer into a wrong one.
"""

from posttrain.processes.pool import TargetRaised, Workers, shared

__all__ = ["TargetRaised", "Workers", "shared"]
