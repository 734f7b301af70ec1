"""The command machines: each interprets the commands of a case against a small model.

After every command everything that the model knows is compared. The finding names the clause by what the last command
did, so that one machine serves several clauses and each of them fails for a reason of its own.
"""

from __future__ import annotations

from gradspec.programs.operations import OPERATIONS
from gradspec.programs.program import Case, Program
from gradspec.session import Session
from gradspec.suite.running import Run, Slots, again, arrived, build, close, plus
from gradspec.suite.support import holds, may_refuse, refused, show, tensor, to_array

# -- graph lifetime --------------------------------------------------------------------------------


def steps_behind(program: Program, root: int) -> set[int]:
    """The numbers of the steps that a pass from the value `root` runs."""
    reached = program.reached(root)
    return {n for n, (_, results) in enumerate(program.results()) if reached.intersection(results)}


def outlives(impl: Session, case: Case, *, refusal: str, acceptance: str) -> None:
    """Passes over one graph: refused where a saved value was freed, accepted where nothing on the way was freed.

    Between the two (a step on the way was freed, but need not save anything) an implementation may do either. The
    machine stops at the first refusal: what the slots hold then is another clause.
    """
    run, program = build(impl, case), case.the_program
    freed: set[int] = set()
    for way, number, retain in case.commands:
        behind = steps_behind(program, program.roots[number].value)
        stale = behind & freed
        must = any(OPERATIONS[program.steps[s].op].saves for s in stale)
        if must:
            with refused(impl, refusal, "graph_freed", twinned=True):
                _one_pass(run, way, number, retain=retain)
            return
        with may_refuse(impl, "graph_freed") as outcome:
            _one_pass(run, way, number, retain=retain)
        found = "succeeds" if outcome.error is None else f"raised {outcome.error.type}"
        holds(
            impl, acceptance, not outcome.error or bool(stale), kind="raised",
            expected="a pass over a graph that was retained succeeds", found=found,
        )  # fmt: skip
        if outcome.error:
            return
        freed |= set() if retain else behind


def _one_pass(run: Run, way: str, number: int, *, retain: bool) -> None:
    root, seed = run.roots[number], run.seeds[number]
    if way == "pass":
        run.impl.backward(root, seed, retain_graph=retain)
    else:
        run.impl.gradients([root], run.leaves, [seed], retain_graph=retain, allow_unused=True)


# -- gradient slots --------------------------------------------------------------------------------


def slots_follow(impl: Session, case: Case, *, empty: str, clear: str, assign: str, add: str, keep: str) -> None:
    """Slots of leaves under backward, assignment and use, against a model that is one array or None for each.

    The clauses: a slot is `empty` at first; `clear`ed it reads None and a pass starts from nothing; an `assign`ed
    tensor is what a pass adds to; passes `add`; nothing else changes a slot (`keep`).
    """
    run, program = build(impl, case), case.the_program
    once, clauses = build(impl, case, passes=1), {"backward": add, "clear": clear, "assign": assign}
    single = once.slots()
    for clause in sorted({clauses[command[0]] for command in case.commands if command[0] in clauses}):
        arrived(impl, clause, once)
    model: Slots = dict.fromkeys(program.leaves)
    last: dict[int, str] = dict.fromkeys(program.leaves, empty)
    _compare(impl, run, model, last)
    for command in case.commands:
        name, leaf = command[0], command[1] if len(command) > 1 else -1
        if name == "backward":
            again(run).backward()
            # a pass after a clear or an assignment is judged for that clause, any other for accumulation
            last = {n: why if why in (clear, assign) else add for n, why in last.items()}
            model = plus(model, single)
        elif name == "clear":
            impl.set_grad(run.handles[leaf], None)
            model[leaf], last[leaf] = None, clear
        elif name == "assign":
            given = program.inputs[leaf]
            data = to_array(given.shape, command[2], given.dtype)
            impl.set_grad(run.handles[leaf], tensor(impl, data))
            model[leaf], last[leaf] = data, assign
        else:
            before = run.slots()
            _use(run, name, leaf)
            _compare(impl, run, before, dict.fromkeys(program.leaves, keep))
        _compare(impl, run, model, last)


def _use(run: Run, name: str, leaf: int) -> None:
    if name == "forward":
        run.impl.release(*again(run).handles[len(run.program.inputs) :])
    elif name == "use":
        run.impl.release(run.impl.apply("mul", run.handles[leaf], run.handles[leaf]))
    else:
        run.impl.value(run.handles[leaf])


def _compare(impl: Session, run: Run, model: Slots, why: dict[int, str]) -> None:
    for leaf, held in model.items():
        found = run.slot(leaf)
        same = close(run.program, leaf, held, found)
        expected = f"{run.handles[leaf]}.grad is {show(held)}"
        holds(impl, why[leaf], same, expected=expected, found=show(found), kind="wrong_value")
