"""Mutated files of every kind that clashsim reads: each must end in success or in one sentence.

`make fuzz` runs it; `python -m fuzz --help` (with tests on the path) has the options.
"""
