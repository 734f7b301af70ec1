"""The result as one HTML page that needs no network: its style and plots are in it."""

from __future__ import annotations

import jinja2

from gradspec.bench import figures
from gradspec.bench.results import Result
from gradspec.bench.tables import (
    amount,
    compared,
    each,
    growths,
    interval,
    left_out,
    method_lines,
    noise_line,
    total,
)
from gradspec.report.board import plain


def page(result: Result) -> str:
    """The page. Whatever an implementation wrote is escaped: autoescape is on, plots are escaped by matplotlib."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gradspec.bench", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"interval": interval, "plain": plain}
    slots = [slot for slot in result.plan.slots if not slot.again]
    scaled = [name for name in result.plan.workloads if any((name, slot.label) in result.growth for slot in slots)]
    measured = any(p.cells[s.label].ratio for p in result.points for s in slots if s.label in p.cells)
    text: str = environment.get_template("page.html").render(
        result=result,
        slots=slots,
        base=result.plan.base,
        again=result.plan.slots[1],
        others=[slot for slot in compared(result) if not slot.again],
        growths=growths(result) if result.growth else None,
        lines=[noise_line(result), *method_lines(result)],
        left_out=left_out(result),
        about={point.workload.name: point.workload.about for point in result.points},
        ratios=figures.ratios(result) if measured else "",
        scaling={name: figures.scaling(result, name) for name in scaled},
        each=each,
        total=total,
        amount=amount,
    )
    return text
