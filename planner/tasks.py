"""What each question to a view costs at best: reading all, count, exists and membership have dichotomies of their own.

Berkholz, Keppeler and Schweikardt 2017 (BKS 2017): O(1) per change and answer holds exactly for queries whose core is
q-hierarchical, where the core of EXISTS projects everything out; under the OMv and OV conjectures for count and
exists, and for reading when no table is joined with itself. The same authors 2018 (BKS 2018) for membership:
t-hierarchical. A bag is read by way of all its columns. Kara, Nikolic, Ngo, Olteanu and Zhang 2020 for triangles. n is
the number of distinct values, about the root of N.

The bounds are claimed only where their proofs hold: the adversary must be free to fill the columns of the witness, so
these are plain columns of large types that no filter mentions, and the tables' keys admit the hard instance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from sqlfront.planner.model.bound import CONSTANT_BOUND, LOGARITHMIC_BOUND, Bound, between_rows
from sqlfront.planner.model.cost import AMORTISED, CONSTANT
from sqlfront.planner.model.hypergraph import Edges, hypergraph, ordered_variables
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Atom, Definition
from sqlfront.planner.theory.core import minimise
from sqlfront.planner.theory.gyo import find_cycle, is_acyclic
from sqlfront.planner.theory.hierarchy import Violation, find_violation, membership_violations, violations
from sqlfront.planner.theory.keys import reduct, refers
from sqlfront.planner.theory.wording import spell_violation, table_name

Verdict = Literal["constant", "hard", "open"]
Name = Literal["read all", "count", "exists", "membership"]


@dataclass(frozen=True)
class Task:
    """One question: what theory allows (`verdict`, `bound`, `theorem`), and what the view pays (`here`).

    "constant": O(1) per change and answer is possible. "hard": no algorithm is that fast, unless a conjecture fails;
    `witness` says why. "open": neither is known; `witness` says which proof does not apply. What is possible is
    `change` per change, and the answer as the `claim` says.
    """

    name: Name
    verdict: Verdict
    claim: str
    theorem: str
    here: str
    witness: str | None = None
    change: Bound | None = None

    @property
    def bound(self) -> str:
        """What theory allows, in words."""
        return self.claim if self.change is None else f"{self.change} per change{self.claim}"


@dataclass(frozen=True)
class _Question:
    """A task as theory puts it: the query that must be easy, the one whose hardness carries over, and the bounds."""

    own: Definition
    core: Definition
    witnesses: Callable[[Edges, Collection[str]], Iterator[Violation]]
    constant: str
    constant_theorem: str
    hard: str
    hard_theorem: str


OMV = "the OMv conjecture"
OV = "the orthogonal vectors conjecture, which SETH implies,"
_CHANGE = "no algorithm takes O(n^(1-e)) per change and"
_KEYS = "the query with what keys or constant rows fix filled in is q-hierarchical (Olteanu, Huang and Koch 2009)"


def classify_tasks(definition: Definition, plan: Plan, views: Collection[str] = ()) -> tuple[Task, ...]:
    """The four tasks of a view and its plan; `views` are those of its tables whose rows are other views'."""
    read, membership = _read(definition, plan), _membership(definition, plan)
    read, membership = (_with_distinct_sets(task, definition) for task in (read, membership))
    tasks = read, _count(definition, plan), _exists(definition, plan), membership
    if not views:
        return tasks
    why = "the known bounds are for tables, not for the rows of views"
    return tuple(_opened(task, why) if task.verdict == "hard" else task for task in tasks)


def _read(definition: Definition, plan: Plan) -> Task:
    delay = plan.stated_cost.delay
    bounds = {
        "constant": ", O(1) between rows",
        "constant_theorem": "BKS 2017, Theorem 3.2",
        "hard": f"{_CHANGE} between rows unless {OMV} fails",
        "hard_theorem": "BKS 2017, Theorem 3.3",
    }
    own = _joined(definition) if definition.mode == "bag" else definition
    if definition.scalar:
        joined = _joined(definition)
        counting = bounds | {"hard": f"{_CHANGE} answer unless {OMV} fails", "hard_theorem": "BKS 2017, Theorem 3.5"}
        task = _decide("read all", definition, plan, delay, _Question(own, joined, violations, **counting))
        return _sharpen_triangle(task, joined, "per answer")
    core = _core(own, own.free)
    task = _decide("read all", definition, plan, delay, _Question(own, core, violations, **bounds))
    task = _weaken_self_joins(task, own) if task.verdict == "hard" else task
    return _sharpen_triangle(task, core, "between rows")


def _count(definition: Definition, plan: Plan) -> Task:
    if definition.scalar:
        return _one_row("count", plan)
    query = _joined(definition) if definition.mode == "bag" else _core(definition, definition.free)
    first = find_violation(hypergraph(query), query.free)
    conjecture = OV if first is not None and first.condition == "free" else OMV
    question = _Question(
        query, query, violations,
        " and answer", "BKS 2017, Theorem 3.2",
        f"{_CHANGE} answer unless {conjecture} fails", "BKS 2017, Theorem 3.5",
    )  # fmt: skip
    return _decide("count", definition, plan, _counting(definition, plan), question)


def _exists(definition: Definition, plan: Plan) -> Task:
    if definition.scalar:
        return _one_row("exists", plan)
    query = _core(definition, ())
    question = _Question(
        query, query, violations,
        " and answer", "BKS 2017, Theorem 3.2",
        f"{_CHANGE} O(n^(2-e)) per answer unless {OMV} fails", "BKS 2017, Theorem 3.4",
    )  # fmt: skip
    return _decide("exists", definition, plan, plan.tuple_delay, question)


def _membership(definition: Definition, plan: Plan) -> Task:
    hidden = plan.hides_variables
    own = definition if definition.mode == "group" else _core(definition, definition.free)
    question = _Question(
        own, _core(definition, definition.free), membership_violations,
        " and answer", "BKS 2018: the query is t-hierarchical",
        f"{_CHANGE} answer unless {OMV} fails", "BKS 2018: the query is not t-hierarchical",
    )  # fmt: skip
    found = replace(plan.cost.space, remark=" at worst") if hidden else plan.tuple_delay
    return _decide("membership", definition, plan, found, question)


def _with_distinct_sets(task: Task, definition: Definition) -> Task:
    """A task that tells values of aggregates which are no sums: to count the distinct values of all groups is to count
    the tuples of a query that puts out groups and values."""
    if task.verdict != "constant" or not definition.distinct_sets:
        return task
    counted = {column.distinct_set for column in definition.raw if column.kind in ("count", "sum", "avg")}
    for number, distinct_set in enumerate(definition.distinct_sets):
        query = _core(distinct_set.definition, distinct_set.definition.free)
        found = list(violations(hypergraph(query), query.free))
        easy = reduct(query)
        if not found or next(violations(hypergraph(easy), easy.free), None) is None:
            continue
        proved = next((violation for violation in found if _objection(query, violation) is None), None)
        if number not in counted:
            return _opened(task, f"no bound is known for the order of {distinct_set.label}")
        if proved is None:
            return _opened(task, _objection(query, found[0]) or "")
        claim = f"{_CHANGE} answer unless {OV if proved.condition == 'free' else OMV} fails"
        spelled = spell_violation(query, proved)
        theorem = "BKS 2017, Theorem 3.5"
        return replace(task, verdict="hard", claim=claim, theorem=theorem, witness=spelled, change=None)
    if any(distinct_set.ordered for distinct_set in definition.distinct_sets):
        theorem = f"{task.theorem}; the values of a group in a search tree"
        return replace(task, change=LOGARITHMIC_BOUND, theorem=theorem)
    return task


def _counting(definition: Definition, plan: Plan) -> Bound:
    """What counting the rows costs: the number is kept, but for tuples that a union's trees have apart, and for those
    that several nodes hold together where a change takes more than a constant number of steps."""
    return CONSTANT_BOUND if definition.mode == "bag" or definition.scalar else plan.tuple_count


def _one_row(name: Name, plan: Plan) -> Task:
    here = _here(name, plan, CONSTANT_BOUND)
    return Task(name, "constant", str(CONSTANT_BOUND), "aggregates without GROUP BY are one row", here)


def _here(name: Name, plan: Plan, answer: Bound) -> str:
    then = between_rows(answer) if name == "read all" else f"then {answer}"
    return f"{plan.stated_cost.update} per change, {then}"


def _decide(name: Name, definition: Definition, plan: Plan, answer: Bound, question: _Question) -> Task:
    here = _here(name, plan, answer)

    if definition.comparisons:
        return Task(name, "open", "none is known", "", here, "the known bounds are for joins by equalities")

    def holds(query: Definition) -> bool:
        return next(question.witnesses(hypergraph(query), query.free), None) is None

    if definition.outer_atoms:
        if plan.cost == CONSTANT and answer == CONSTANT_BOUND:
            claim, theorem = question.constant, f"{question.constant_theorem}, with the rows of NULLs in their places"
            return Task(name, "constant", claim, theorem, here, change=CONSTANT_BOUND)
        return Task(name, "open", "none is known", "", here, "the known bounds are for joins without outer ones")

    if definition.having is not None and name != "read all":
        return Task(name, "open", "none is known", "", here, "HAVING is checked row by row when the view is read")
    if holds(question.own):
        return Task(name, "constant", question.constant, question.constant_theorem, here, change=CONSTANT_BOUND)
    if holds(reduct(question.own)):
        return Task(name, "constant", question.constant, _KEYS, here, change=CONSTANT_BOUND)
    if plan.cost in (CONSTANT, AMORTISED) and answer == CONSTANT_BOUND:
        claim = question.constant if plan.cost == CONSTANT else f"{question.constant}, amortised"
        return Task(name, "constant", claim, "the declared keys (Wang and Yi 2020)", here, change=CONSTANT_BOUND)
    found = [
        (v, _objection(question.core, v)) for v in question.witnesses(hypergraph(question.core), question.core.free)
    ]
    proved = next((violation for violation, objection in found if objection is None), None)
    if proved is not None:
        return Task(name, "hard", question.hard, question.hard_theorem, here, spell_violation(question.core, proved))
    why = found[0][1] if found else "aggregates over a self-join need more than its core, for which no bound is known"
    return Task(name, "open", "none is known", "", here, why)


def _weaken_self_joins(task: Task, own: Definition) -> Task:
    """Reading a query with self-joins is known to be hard where already its emptiness is, and for one query more."""
    core = _core(own, own.free)
    if len({atom.table for atom in core.atoms}) == len(core.atoms):
        return task
    if _is_edges_between_loops(core):
        return replace(task, theorem="BKS 2017, Lemma A.1")
    boolean = _core(own, ())
    if find_violation(hypergraph(boolean), ()) is not None:
        return task
    why = "a table is joined with itself, and whether the view has rows is easy to tell: no bound is known"
    return _opened(task, why)


def _sharpen_triangle(task: Task, core: Definition, answer: str) -> Task:
    """A query with a triangle in which the hard instance fits has a bound of its own, in the number of rows."""
    edges = hypergraph(core)
    cycle = None if task.verdict != "hard" or is_acyclic(edges) else find_cycle(edges)
    if cycle is None or len(cycle.variables) != 3:
        return task
    pairs = (found for found in violations(edges, ()) if {found.x, found.y} <= set(cycle.variables))
    if all(_objection(core, found) is not None for found in pairs):
        return task
    claim = f"no algorithm takes O(N^(1/2-g)) per change and O(N^(1-g)) {answer} unless {OMV} fails"
    return replace(task, claim=claim, theorem="Kara et al. 2020, Proposition 5")


def _opened(task: Task, why: str) -> Task:
    return replace(task, verdict="open", claim="none is known", theorem="", witness=why, change=None)


def _is_edges_between_loops(core: Definition) -> bool:
    """E(x,x), E(x,y), E(y,y), all put out: the query of the paper's Lemma A.1."""
    if len(core.atoms) != 3 or len({atom.table for atom in core.atoms}) != 1:
        return False
    edge, *loops = sorted(core.atoms, key=lambda atom: len(atom.conditions))
    columns = {column.expression for column in edge.variables}
    return (
        len(columns) == 2
        and not edge.conditions
        and all(len(loop.conditions) == 1 and set(loop.conditions[0].equates or ()) == columns for loop in loops)
        and edge.scheme == loops[0].scheme | loops[1].scheme == frozenset(core.free)
    )


def _joined(definition: Definition) -> Definition:
    """The join with all its columns put out: what a bag repeats rows of, and what COUNT(*) counts."""
    return replace(
        definition, free=ordered_variables(definition), mode="set", measures=(), raw=(), scalar=False, distinct_sets=()
    )


def _core(definition: Definition, free: tuple[str, ...]) -> Definition:
    """The core of the query that puts out `free` without multiplicities."""
    return minimise(replace(definition, free=free, mode="set", measures=(), raw=(), scalar=False, distinct_sets=()))


def _objection(query: Definition, violation: Violation) -> str | None:
    """Why the hard instance of a witness may not exist: then there is no bound. None if it does."""
    pair = {violation.x, violation.y}
    tables = [atom.table for atom in query.atoms]
    if len(set(tables)) < len(tables):
        if any(condition.equates is None for atom in query.atoms for condition in atom.conditions):
            return "the known bounds do not cover a table joined with itself under filters"
        if any(atom.keys for atom in query.atoms if tables.count(atom.table) > 1):
            return "the known bounds do not cover a table joined with itself under declared keys"
    if any(refers(atom, other) for atom in query.atoms for other in query.atoms):
        return "the known bounds do not cover declared foreign keys"
    for atom in query.atoms:
        here = pair & atom.scheme
        if any(not here <= key and not _tells_apart(query, atom, key, violation) for key in atom.keys):
            return f"the known bounds do not cover the declared key of {table_name(atom.table)}"
        objections = chain.from_iterable(_column_objections(query, atom, variable) for variable in sorted(here))
        found = next(objections, None)
        if found is not None:
            return found
    return None


def _tells_apart(query: Definition, atom: Atom, key: frozenset[str], violation: Violation) -> bool:
    """Whether a column of the key that joins nothing can number the atom's rows without harm to the reduction.

    Put out, it multiplies the answers: that does not matter where the first of them decides.
    """
    elsewhere = frozenset().union(*(other.scheme for other in query.atoms if other is not atom))
    lone = key - elsewhere
    if violation.condition == "hierarchical" and not violation.bound:
        return bool(lone)
    return bool(lone - frozenset(query.free))


def _column_objections(query: Definition, atom: Atom, variable: str) -> Iterator[str]:
    column = next(column for column in atom.variables if column.name == variable)
    if column.source is None:
        yield f"the known bounds are for plain columns, not for {query.label(variable)}"
    elif re.match(r"BOOLEAN|U?TINYINT|ENUM", column.type):
        yield f"{query.label(variable)} has few values: {column.type}"
    else:
        filters = (condition.text for condition in atom.conditions if condition.equates is None)
        if any(re.search(rf"(?<!\w){re.escape(column.source)}(?!\w)", text) for text in filters):
            yield f"the known bounds do not cover a filter on {query.label(variable)}"
