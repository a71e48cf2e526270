"""What runs in the supervisor and in the sandboxes: standard library only, started without posttrain on its path.

Imports are relative here and nowhere else, since this package has another name inside.
"""
