"""`gradspec bench`: how long an implementation takes, as a ratio to another one measured in the same run.

- `workloads`: what is measured, over the contract and nothing else;
- `plan`: who is measured on what, in which order: repeats alternate between the implementations;
- `child`: pytest-benchmark over the plan, in a process of its own; `measured` is the test file that it runs;
- `process`: starts that process and tells how far it is;
- `estimates`: ratios with intervals, and growth exponents;
- `results`: from pytest-benchmark's file to one result, which is kept in the same file;
- `tables`: the result as text, for the terminal and as Markdown;
- `page`: the result as one HTML page; `figures` draws its plots;
- `command`: the command.
"""

from __future__ import annotations
