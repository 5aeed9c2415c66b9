"""One-line faults that the quick tests must catch (law 8): the proof that they can fail.

`python -m tests.faults [NAME...]` applies each to a copy of the tree and runs the test named with it, which
passes on an unchanged copy; tests/test_faults.py does so for all of them when slow tests are asked for.
A kernel's fault compiles anew, for half a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
STREAMS, TABLE, LIMBS = "tests/streams/test_streams.py", "tests/storage/test_table.py", "tests/storage/test_limbs.py"
HUBS, FIXTURES = STREAMS + " -k hub", STREAMS + " -k failed"
ORDER, DISTINCT = "tests/storage/test_order.py", "tests/sqlfront/test_distinct_aggregates.py -k reopened"
EXPRESSIONS = "tests/maintenance/test_expressions.py"
EXTEND, CYCLIC = "tests/maintenance/test_extend.py", "tests/sqlfront/test_cyclic.py -k looks_the_same"
ROUNDED, BOUNDS = "tests/sqlfront/test_rounded_sums.py", "tests/storage/test_bounds.py"
RANKED, ORDERED = "tests/sqlfront/test_ranked.py", "tests/sqlfront/test_ordered_reads.py"
QUALIFY, BLOCKS = "tests/sqlfront/test_qualify.py", "tests/sqlfront/test_first_blocks.py"
PRODUCTS = "tests/sqlfront/test_shard_products.py"
BLOCKS_IN_SHARDS = "tests/sqlfront/test_shard_blocks.py"
SHARDS, COMPOSED = "tests/sqlfront/test_shards.py", "tests/sqlfront/test_composed_orders.py"
INEQUALITY, RANGES = "tests/sqlfront/test_inequality.py", "tests/storage/test_range_sums.py"
REPLACING = "tests/sqlfront/test_replacing.py"
UNIONS = "tests/sqlfront/test_unions_of_queries.py"
SUPPORTS = "tests/maintenance/test_supports.py"
BINDER = "tests/sqlfront/test_binder.py -k definition_is_the_query"


@dataclass(frozen=True)
class Fault:
    """In `file`, `old` (which occurs once) becomes `new`; `caught_by` are pytest's arguments."""

    name: str
    file: str
    old: str
    new: str
    caught_by: str = STREAMS


FAULTS = [
    Fault(
        "a bound in a sum forgets the constant", "sqlfront/keyset.py",
        "Fraction(value) * term.whole - term.constant", "Fraction(value) * term.whole",
        "tests/sqlfront/test_keyset.py -k after_sums",
    ),
    Fault(
        "a sum that is NULL is behind every bound", "maintenance/seek.py",
        "return words == null if null else words != 0", "return words == null if null else words < 0",
        "tests/sqlfront/test_keyset.py -k not_counted",
    ),
    Fault(
        "rows before a bound are passed over however many they are", "maintenance/seek.py",
        "if self._most is not None and self._passed > self._most:", "if self._most == 0:",
        "tests/sqlfront/test_keyset.py -k with_offset",
    ),
    Fault(
        "a name is remembered though another connection may change what it means", "sqlfront/names.py",
        'if key is None or len(parts) == 2 or any(place[0] != "temp" for place in before):', "if key is None:",
        "tests/sqlfront/test_names.py -k another_connection",
    ),
    Fault(
        "what hides a name is not looked for again", "sqlfront/connection.py",
        "self._gates, self._tables, self._meant = {}, {}, {}", "self._gates, self._tables = {}, {}",
        "tests/sqlfront/test_names.py -k looked_up_again",
    ),
    Fault(
        "values of rows that may both be NULL are joined", "sqlfront/bind_conditions.py",
        "    if joins and not any(never_null(side, is_declared, typing) for side in (left, right)):",
        "    if joins and not (left and right):", "tests/sqlfront/test_binder.py -k refusal",
    ),
    Fault(
        "a NULL within a row of one table equals nothing", "sqlfront/bind_conditions.py",
        '"a = b" if joins else "a IS NOT DISTINCT FROM b"', '"a = b"',
        "tests/sqlfront/test_derived.py -k rows_are_equal",
    ),
    Fault(
        "a filter counts only where the aggregate's argument is", "sqlfront/bind_companions.py",
        "deciding_atoms(whole, names, kept.argument, kept.filtered)", "deciding_atoms(whole, names, kept.argument, ())",
        SUPPORTS,
    ),
    Fault(
        "the one row over nothing has the values of one side", "maintenance/companions.py",
        "        if self._view.definition.scalar:", "        if self._view.definition.scalar and not self._rows:",
        SUPPORTS,
    ),
    Fault(
        "a value is told to the first of the groups that have it", "maintenance/companion_change.py",
        "        for position in positions:", "        for position in positions[:1]:", SUPPORTS,
    ),
    Fault(
        "a value that no group's row shows is told to all groups", "maintenance/companion_change.py",
        "        return np.unique(positions % max(count, 1))", "        return np.arange(count)", SUPPORTS,
    ),
    Fault(
        "groups without sums count their rows", "maintenance/emission.py",
        "self.supports = ignores_multiplicity(tree.definition)", 'self.supports = tree.definition.mode == "set"',
        SUPPORTS,
    ),
    Fault(
        "a group was there before as often as rows changed it", "maintenance/output_change.py",
        " if self._delta.supports else out", " if self._delta.supports and not self._view.companions else out",
        SUPPORTS,
    ),
    Fault(
        "a view that reads a replaced one is bound to that", "sqlfront/replacing.py",
        "EngineCatalog(database, con, entries)", "EngineCatalog(database, con)", REPLACING,
    ),
    Fault(
        "a column that is gone is left out where it is named", "sqlfront/freeze.py",
        "natural or name.casefold() in named", "natural", REPLACING,
    ),
    Fault(
        "what other writers commit is not taken in before views are built", "sqlfront/build.py",
        "        if changes:\n            applied = ", "        if not changes:\n            applied = ", REPLACING,
    ),
    Fault(
        "a piece of listed triangles misses light ones", "planner/triangle_rows.py",
        """trees.closed("L*H", 1, "L*", "**", "H*")""", """trees.closed("L*H", 1, "L*", "**", "HH")""",
        "tests/maintenance/test_triangle_rows.py -k query0",
    ),
    Fault(
        "a join beside a wider atom keeps what the atom has not", "planner/decomposition.py",
        "    single = sum(len(part.atoms) for part in others) < 2\n",
        "    single = sum(len(part.atoms) for part in others) < 2\n    if single:\n        return False\n",
        "tests/sqlfront/test_cyclic.py -k by_edge_and_weight",
    ),
    Fault(
        "heavy and light parts forget comparisons", "planner/unions.py",
        "    if definition.comparisons:\n        return None\n", "", "tests/maintenance/test_unions.py -k comparisons",
    ),
    Fault(
        "a comparison within a table is one of the join", "sqlfront/bind_conditions.py",
        "    return bool(both)", "    return False", "tests/sqlfront/test_triangle_spellings.py -k ascending",
    ),
    Fault(
        "a way to a row of a set counts as often as it is there", "maintenance/paths.py",
        "    assembler.transition(table, base is not leaf or position == 1, out, out.places(shape.variables))\n", "",
        SUPPORTS,
    ),
    Fault(
        "rows that cancel meet others", "maintenance/engine.py", "            item.net()", "            item.rows += 0",
        SUPPORTS,
    ),
    Fault(
        "a shard's engine serves what was not committed", "sqlfront/shards/shard.py",
        "        if self.at != at:", "        if self.at.number < at.number:", SHARDS,
    ),
    Fault(
        "a row is sent to one cell of those it agrees with", "sqlfront/shards/routes.py",
        "        if dimension not in decided:", "        if dimension in decided and share == 0:", SHARDS,
    ),
    Fault(
        "a row is sent to meet another component's", "planner/partitioning.py",
        "max(grid.shards for grid in grids) > 1:", "max(grid.shards for grid in grids) > MOST_SHARDS:",
        "tests/planner/test_partitioning.py",
    ),
    Fault(
        "what is only compared is summed up where it is put out", "maintenance/carrying.py",
        "summed = None if _lacks(tree, view, bound) else", "summed = None if carries(tree, view) else",
        "tests/sqlfront/test_inequality.py -k follow",
    ),
    Fault(
        "a block's groups are in several shards", "planner/blocks.py",
        "    own = every if definition.mode ==", "    own = every if definition.mode !=", BLOCKS_IN_SHARDS,
    ),
    Fault(
        "a union is spread by some of its branches", "planner/blocks.py",
        "if len(choices) == 1 or not all(choices):", "if len(choices) == 1 or not any(choices):",
        BLOCKS_IN_SHARDS,
    ),
    Fault(
        "a NaN goes to another shard than one of the other sign", "sqlfront/shards/routes.py",
        "isnan({cast}) THEN", "isinf({cast}) THEN", f"{SHARDS} -k whatever_their_sign",
    ),
    Fault(
        "a shard goes on with the log of another view's rows", "sqlfront/shards/plan.py",
        ", _told(self.combination.shards))", ")", f"{BLOCKS_IN_SHARDS} -k replaced",
    ),
    Fault(
        "a plan is another one in each process", "sqlfront/shards/plan.py",
        "        return sorted(value)", "        return value", f"{BLOCKS_IN_SHARDS} -k process",
    ),
    Fault(
        "a value that is counted is in several shards", "planner/partitioning.py",
        "        if not here or all(", "        if not here and all(", SHARDS,
    ),
    Fault(
        "a sum over an empty product is 0", "planner/product.py",
        'return f"NULLIF({self.count(present)}, 0)"', "return self.count(present)", f"{PRODUCTS} -k empty",
    ),
    Fault(
        "an extreme over an empty product is its component's", "planner/product.py",
        "        if not definition.scalar:", "        if definition.mode:", f"{PRODUCTS} -k empty",
    ),
    Fault(
        "a view without groups has no row before its shard has one", "planner/combination.py",
        " and not definition.scalar)", ")", f"{SHARDS} -k before_rows_are_sent",
    ),
    Fault(
        "a component of which nothing is put out need not have rows", "planner/product.py",
        "for part in parts if part.is_counted)", "for part in parts if part.is_counted and part.free)",
        f"{PRODUCTS} -k others",
    ),
    Fault(
        "a small table gets shares as a large one", "planner/partitioning.py",
        "-log(max(size, 1.0)) / whole for size in", "-1.0 for size in",
        "tests/planner/test_partitioning.py",
    ),
    Fault(
        "equal values pass <", "maintenance/programs.py",
        '"<": at.PASS_LESS,', '"<": at.PASS_LESS | at.PASS_EQUAL,', INEQUALITY,
    ),
    Fault(
        "a range begins at the least member", "storage/range_kernels.py",
        "    if load(at, _LOWER) == 0:", "    if load(at, _LOWER) >= 0:", INEQUALITY,
    ),
    Fault(
        "a sum over a range keeps what is beyond its upper bound", "storage/range_kernels.py",
        "steps += take_failing(table, at + upper, row, load32(address, sides + 1), 1, sums)", "pass", RANGES,
    ),
    Fault(
        "a rotation forgets the sums of what it lifts", "storage/subtree_kernels.py",
        "    add_below(table, lifted + place, upper, 0)\n", "", RANGES,
    ),
    Fault(
        "a feed counts what it is going to list", "maintenance/emission.py",
        "self.free.append(replace(step, multiply=False))", "self.free.append(step)",
        "tests/sqlfront/test_range_walks.py",
    ),
    Fault(
        "sums over ranges are read in the width of values", "maintenance/paths.py",
        "sums = shape_of((), tree.widths, shape.parts, shape.limbs + 1)",
        "sums = shape_of((), tree.widths, shape.parts, shape.limbs)", "tests/sqlfront/test_range_sums.py -k follow",
    ),
    Fault(
        "NULL is compared as the least value", "sqlfront/bind_leaves.py",
        "return compared or len(variable.members) > 1", "return len(variable.members) > 1", INEQUALITY,
    ),
    Fault(
        "a feed passes what a comparison stops", "maintenance/emission.py",
        'if step.access == "filter" or not sibling.node.connex:',
        'if step.access != "filter" and not sibling.node.connex:', INEQUALITY,
    ),
    Fault(
        "only the top of a path is updated", "maintenance/paths.py",
        "climb(tree, leaf, top, assembler, limbs, write_all=True, times=times)",
        "climb(tree, leaf, top, assembler, limbs, write_all=False, times=times)",
    ),
    Fault(
        "both atoms of a self-join read the old state", "maintenance/state.py",
        "Source(relation, store, occurrence % 2)", "Source(relation, store, 0)",
    ),
    Fault(
        "the third atom of a self-join shares the first one's store", "maintenance/state.py",
        "else occurrence // 2", "else 0",
    ),
    Fault(
        "a ranked tree does not follow its bags", "maintenance/paths.py",
        "(parent.table, *parent.followers.values())", "(parent.table,)",
        "tests/sqlfront/test_ranked_bags.py -k duckdb",
    ),
    Fault(
        "a filter keeps what its atom no longer has", "maintenance/paths.py",
        "assembler.transition(counted.table, True, leaf.shape, places)",
        "assembler.transition(counted.table, False, leaf.shape, places)",
        "tests/maintenance/test_filters.py -k random",
    ),
    Fault(
        "a change of a filter is not carried up", "maintenance/view.py",
        "for leaf in self.tree.entries():", "for leaf in self.tree.leaves.values():",
        "tests/maintenance/test_filters.py -k random",
    ),
    Fault(
        "a ring forgets a way in which rows may be heavy", "planner/rings.py",
        'self._change(i, ("LH", "LL", "HL"), leaves[s], leaves[t], leaves[u]),', "",
        "tests/maintenance/test_rings.py -k combination",
    ),
    Fault(
        "a value's status is that of one of its two tables", "maintenance/pieces.py",
        "        if self.union.joint:\n", "        if self.union.covers:\n",
        "tests/maintenance/test_ring_rows.py -k status",
    ),
    Fault(
        "a self-join moves a row once for each of its columns", "maintenance/rebalance.py",
        "add.route(dict.fromkeys(range(i), False))", "add.route({})",
        "tests/maintenance/test_ring_rows.py -k self-join",
    ),
    Fault(
        "merged pieces are read as far as they have been asked", "maintenance/top.py",
        "self._ready = int(min(last)) + 1 if last else len(order)", "self._ready = len(order)",
        "tests/maintenance/test_ring_rows.py -k first_rows_are",
    ),
    Fault(
        "rows of several branches of a UNION come once more with the next block", "maintenance/top.py",
        "        known = np.concatenate([self._last, keys])\n",
        "        known = np.concatenate([self._last, keys])\n        self._last = self._last[:0]\n",
        "tests/sqlfront/test_ranked_unions.py -k follow",
    ),
    Fault(
        "a branch's sums are compared in the direction that they have in it", "sqlfront/bind_branches.py",
        "replace(own, descending=term.descending, nulls_first=term.nulls_first)", "own",
        "tests/sqlfront/test_ranked_unions.py -k those_of_the_union",
    ),
    Fault(
        "sums of a branch that differ by a constant are one", "sqlfront/bind_branches.py",
        "return term.form, term.parts, term.whole, term.constant, term.rounding", "return term.form, term.parts",
        "tests/sqlfront/test_ranked_unions.py -k differ_by_a_constant",
    ),
    Fault(
        "rows of constants have no rank words", "maintenance/ranked.py",
        "    if not entries:", "    if False:",
        "tests/sqlfront/test_ranked_unions.py -k constants_over_a_join",
    ),
    Fault(
        "unions that merged branches read are forgotten", "planner/merging.py",
        "unions=unions, merged=True", "unions=(), merged=True",
        "tests/sqlfront/test_ranked_unions.py -k over_unions",
    ),
    Fault(
        "the least of an expression over several tables is the greatest", "sqlfront/bind_companions.py",
        'descending = extremum == "greatest"', "descending = True",
        "tests/sqlfront/test_best_of_joins.py -k those_of_the_query",
    ),
    Fault(
        "the argument of an extremum over several tables may be NULL", "sqlfront/bind_derived.py",
        'if term.form in (*STRICT, "value"))', "if term.form in STRICT)",
        "tests/sqlfront/test_best_of_joins.py -k ties_in_an_argument",
    ),
    Fault(
        "a page that a column outside the root bounds begins behind the root's rows", "maintenance/seek.py",
        "after.inclusive or decided < len(words)", "after.inclusive",
        "tests/sqlfront/test_keyset.py -k paged_through",
    ),
    Fault(
        "a page of rows with one value goes on with the next", "maintenance/seek.py",
        "if not equal.all():", "if False:", "tests/sqlfront/test_keyset.py -k given_values",
    ),
    Fault(
        "rows with NULL behind a bound count as rows of the page", "maintenance/seek.py",
        "if self._nulls or not bounds or not len(keys):", "if True:",
        "tests/sqlfront/test_keyset.py -k those_of_the_query",
    ),
    Fault(
        "a walk begins at the first row whatever it is after", "maintenance/top.py",
        "0 if start is None else start.address", "0", "tests/sqlfront/test_keyset.py -k late_page",
    ),
    Fault(
        "a greater row is beyond NULLs that come first", "sqlfront/keyset.py",
        'greater is term.descending or (bound.in_row and greater and "NULLS FIRST" in direction):',
        "greater is term.descending:",
        "tests/sqlfront/test_keyset.py -k no_place",
    ),
    Fault(
        "an ENUM is in the order of the text that it joins", "sqlfront/bind_order.py",
        'if typing.type_of(item.tree).startswith("ENUM")', 'if typing.type_of(item.tree).startswith("NONE")',
        "tests/sqlfront/test_best_of_joins.py -k joined_to_text",
    ),
    Fault(
        "what a change makes appear is told of each piece of a long list", "storage/program_kernels.py",
        "            if depth > 0:  # A delta", "            if depth > 99:  # A delta",
        "tests/sqlfront/test_distinct_aggregates.py -k many_ways",
    ),
    Fault(
        "a first row that changes twice in an epoch was what it was between", "storage/rank_kernels.py",
        "            for j in range(2 + ranks):\n                store(touched",
        "            for j in range(1):\n                store(touched",
        "tests/sqlfront/test_best_of_joins.py -k twice",
    ),
    Fault(
        "values that move are not ranked anew", "maintenance/rebalance.py",
        "        pieces.add_ranking(sweep)\n", "", "tests/maintenance/test_ring_rows.py -k ordered",
    ),
    Fault(
        "sums for heavy values do not follow the table between", "planner/rings.py",
        "added(i + 2, every[1], every[0], every[2]),", "",
        "tests/maintenance/test_rings.py -k comes_to_use",
    ),
    Fault(
        "NULL joins NULL", "storage/delta_kernels.py",
        "if load(source, load(at, 8 + j)) == NULL_CODE:", "if required > 99:",
    ),
    Fault(
        "liveness by a sum", "storage/scan_kernels.py",
        "        if sign_of(address, keys, limbs) != 0:\n            store(block",
        "        if sign_of(address, load(table, LINKS) - limbs, limbs) != 0:\n            store(block",
    ),
    Fault(
        "sweeps are forgotten", "maintenance/state.py",
        "sweep.finish(at.SWEEP, stores)", "sweep.finish(at.SWEEP, [])",
    ),
    Fault(
        "undo forgets the sign", "storage/delta_kernels.py",
        "weight = load(source, data_width - 1) * sign", "weight = load(source, data_width - 1)",
    ),
    Fault(
        "the places of a group's key are reversed", "storage/table.py",
        "entry[2 : 2 + len(places)] = places", "entry[2 : 2 + len(places)] = places[::-1]",
    ),
    Fault(
        "a removed row leaves a hole in its chain of slots", "storage/table_kernels.py",
        "if (j - home) & mask >= (j - i) & mask:", "if (j - home) & mask > (j - i) & mask:",
        TABLE,
    ),
    Fault(
        "a failed epoch is not taken back", "maintenance/engine.py",
        "            except BaseException:\n                self.undo_encoded(done)\n                raise",
        "            except BaseException:\n                raise",
    ),
    Fault(
        "a reference is not counted", "storage/table_kernels.py",
        "count_references(table, address, 1)", "count_references(table, address, 0)", TABLE,
    ),
    Fault(
        "a dropped view keeps its references", "storage/table.py",
        "upkeep.release_references(self.address)", "self.live",
    ),
    Fault(
        "a hub's expansion is not resumed", "storage/extend_kernels.py",
        "store(at, _POSITION, -1 if position >= rows else position)", "store(at, _POSITION, -1)", HUBS,
    ),
    Fault(
        "a loop does not join itself", "storage/route_kernels.py",
        "        if equal:\n            return False", "        if equal:\n            return True",
        "tests/sqlfront/test_cyclic.py -k single",
    ),
    Fault(
        "heavy values are passed over", "storage/route_kernels.py",
        "any_heavy |= heavy", "any_heavy |= 0", "tests/maintenance/test_skew.py -k hub",
    ),
    Fault(
        "the current bucket excludes what it puts out", "storage/hop_kernels.py",
        "if current >= 0 and bucket != current:", "if current >= 0:", "tests/maintenance/test_pieces.py -k unions",
    ),
    Fault(
        "a piece of the binary strategy is forgotten", "planner/triangles.py",
        'trees.listed("H(LL)*", "H*", "LL", WHOLE),', "", "tests/maintenance/test_pieces.py -k hub_instance",
    ),
    Fault(
        "parts take a change before the pieces that join what was", "maintenance/pieces.py",
        "if position == last or", "if position == 0 or",
        "tests/maintenance/test_pieces.py -k closed",
    ),
    Fault(
        "the cut list of a wave starts over", "storage/extend_kernels.py",
        "position += n if member == 0 else n - 1", "position += n", EXTEND,
    ),
    Fault(
        "a row that is taken back keeps its number", "maintenance/epoch.py",
        "                    machine.epochs -= 1\n", "", "tests/sqlfront/test_transactions.py -k around_the_run",
    ),
    Fault(
        "the first member of a list does not know the last", "storage/table_kernels.py",
        "if after != 0 or head != row + 1:", "if after != 0:", TABLE,
    ),
    Fault(
        "a cut list is walked from both ends", "storage/extend_kernels.py", "1 if out == size else 0)", "1)", EXTEND,
    ),
    Fault(
        "a candidate that one side lacks is kept", "storage/extend_kernels.py",
        "for t in range(load(at, 2) - 1, -1, -1):", "for t in range(min(1, load(at, 2) - 1), -1, -1):", EXTEND,
    ),
    Fault(
        "the longest list is walked", "storage/extend_kernels.py",
        "best == 0 or load32(tail, 1) < load32(best, 1)", "best == 0 or load32(tail, 1) > load32(best, 1)", EXTEND,
    ),
    Fault(
        "rows of the delta that meet each other count once", "maintenance/symmetry.py",
        "yield Term(chosen[0], chosen[1:], len(orbit))",
        "yield Term(chosen[0], chosen[1:], len(orbit) if size == 1 else 1)", CYCLIC,
    ),
    Fault(
        "a summed column does not tell atoms apart", "maintenance/symmetry.py",
        "_summed(measure, atoms, carried) == _summed(measure, atoms, {})", "True", CYCLIC,
    ),
    Fault(
        "carries are dropped", "storage/limb_kernels.py", "total = a + b + carry", "total = a + b", LIMBS,
    ),
    Fault(
        "an overflow of a sum goes unseen", "storage/table_kernels.py",
        "overflow |= add_overflows(a, b)", "overflow |= 0", FIXTURES,
    ),
    Fault(
        "views are not rescaled", "maintenance/view.py", "table.rescale(number, bits)", "table.live", FIXTURES,
    ),
    Fault(
        "groups' sums are not kept", "storage/table_kernels.py",
        "        if summed > 0:\n            group_row", "        if summed > 99:\n            group_row", TABLE,
    ),
    Fault(
        "predicates are ignored", "storage/delta_kernels.py",
        "keep = predicate < 0 or load(source, predicate) == 1", "keep = True",
    ),
    Fault(
        "a new index does not hold the rows there are", "maintenance/state.py",
        "                copy_rows(self.machine, old, store)", "                pass", FIXTURES,
    ),
    Fault(
        "a row that was emptied twice is freed twice", "storage/table_kernels.py",
        "if load(address, keys) != MARK and sign_of(address, keys, limbs) == 0:",
        "if sign_of(address, keys, limbs) == 0 or load(address, keys) == MARK:", TABLE,
    ),
    Fault(
        "a neighbour keeps pointing at an unlinked row", "storage/table_kernels.py",
        "store32(rows + ((after if after != 0 else head) - 1) * width * 8, place + 1, before)",
        "store32(rows + ((after if after != 0 else head) - 1) * width * 8, place + 1, row + 1)", TABLE,
    ),
    Fault(
        "computed columns see the caller's types", "maintenance/relation.py",
        "types = {column.name: column.type for column in self.columns}",
        "types = {c.name: str(v.type).replace('string', 'varchar') for c, v in zip(self.columns, rows.columns)}",
        FIXTURES,
    ),
    Fault(
        "a search tree is not balanced", "storage/order_kernels.py",
        "if priority(above, keys) >= own:", "if priority(above, keys) >= own or steps == 0:", ORDER,
    ),
    Fault(
        "a string equals its prefix", "storage/dictionary_kernels.py",
        "return (own > other) - (own < other)", "return 0 * (own - other)", ORDER,
    ),
    Fault(
        "rows that have moved keep the old children", "storage/order_kernels.py",
        "for word in (place + 3, sides, sides + 1):", "for word in (place + 3, sides):", ORDER,
    ),
    Fault(
        "a swept row stays in the search tree", "storage/order_kernels.py",
        "    hang(table, rest, load32(address, place + 3), row + 1, place, sides, group_tail)\n    return steps",
        "    return steps", ORDER,
    ),
    Fault(
        "NULL is a value", "sqlfront/bind_companions.py",
        "required=atom.required | (variables & nullable)", "required=atom.required", BINDER,
    ),
    Fault(
        "an aggregate's filter is forgotten", "sqlfront/bind_companions.py",
        "JoinCore(self._core.atoms, [*self._core.conditions, *conditions])",
        "JoinCore(self._core.atoms, [*self._core.conditions])", BINDER,
    ),
    Fault(
        "the greatest value is the least", "maintenance/companions.py",
        'int(raw.kind == "greatest")', 'int(raw.kind == "least")', DISTINCT,
    ),
    Fault(
        "tuples that go are not counted off", "maintenance/tally.py",
        "        emission.turn(assembler, delta, position)\n", "        assembler.sign(delta.shape)\n",
        "tests/maintenance/test_tally.py",
    ),
    Fault(
        "a materialized join forgets what is put out", "planner/rules/materialize.py",
        "return inside & frozenset(definition.free).union(*outside)", "return inside & frozenset().union(*outside)",
        "tests/planner/test_materialize.py",
    ),
    # Change capture.
    Fault(
        "an UPDATE's old rows are not captured", "storage/capture_sql.py",
        '("UPDATE", f"{old} {new}", f"{gone} UNION ALL {come}")', '("UPDATE", f"{old} {new}", come)',
        "tests/storage/test_capture_stream.py",
    ),
    Fault(
        "changes of others are taken for one's own", "storage/capture_sql.py",
        '{True: "tx = txid_current()",', '{True: "true",',
        "tests/storage/test_capture_transactions.py -k own_and_foreign",
    ),
    Fault(
        "older transactions are not waited for", "storage/capture.py",
        "if not (in_transaction or trusted):", "if False:",
        "tests/storage/test_capture.py -k older_than_the_triggers",
    ),
    Fault(
        "a dropped trigger goes unseen", "storage/capture_watch.py",
        "if alive[captured.table.key] != len(TRIGGERS)]", "if not alive[captured.table.key]]",
        "tests/storage/test_capture.py -k broken_capture",
    ),
    Fault(
        "rows that an upsert writes anew are not captured", "storage/capture_upsert.py",
        "WHERE rowid > {last}", "WHERE rowid > {last} + 1",
        "tests/storage/test_capture_upsert.py -k executemany",
    ),
    Fault(
        "a collation hides what an upsert changes", "storage/capture_upsert.py",
        "exact = ' COLLATE \"binary\"' if", "exact = '' if",
        "tests/storage/test_capture_upsert.py -k collation",
    ),
    Fault(
        "any join condition is taken for a plain one", "storage/capture_parse.py",
        "if any(token.lower in _QUERY_WORDS for token in tokens):", "if False:",
        "tests/storage/test_capture_upsert.py -k other_forms",
    ),
    Fault(
        "half of an interrupted upsert can be committed", "storage/capture_transaction.py",
        "SELECT error('this transaction was interrupted half way')", "SELECT 1",
        "tests/storage/test_capture_upsert.py -k interruption",
    ),
    Fault(
        "a table made anew in another process is trusted", "storage/capture_setup.py",
        "same = installed_as == database and", "same = found and",
        "tests/storage/test_capture_file.py -k renamed_file",
    ),
    Fault(
        "the type of a captured column may change", "storage/capture_ddl.py",
        'return Verdict("refuse", f"views read column {name}, whose type would change")',
        'return Verdict("follow", "it is only a type")',
        "tests/storage/test_capture_ddl.py -k verdicts",
    ),
    # Transactions and writes.
    Fault(
        "a refused COMMIT leaves its changes in the views", "sqlfront/transactions.py",
        "                    undo.callback(database.engine.undo, applied)\n                logged",
        "                logged", "tests/sqlfront/test_transactions.py -k refused_commit",
    ),
    Fault(
        "a private read stays in the views", "sqlfront/transactions.py",
        "                undo_whole(engine, applied)", "                pass",
        "tests/sqlfront/test_transactions.py -k writes_in_autocommit",
    ),
    Fault(
        "writers past us are not caught up with", "sqlfront/transactions.py",
        "        if foreign:", "        if False:", "tests/sqlfront/test_transactions.py -k raw_writers",
    ),
    Fault(
        "a transaction mixes epochs", "sqlfront/transactions.py",
        "return relation is None or relation.changes != self._changes[name]", "return relation is None",
        "tests/sqlfront/test_snapshots.py -k mixed",
    ),
    Fault(
        "an open result is handed to DuckDB", "sqlfront/dispatch.py",
        "connection._served = HeldResult(connection._duck, table)",
        "connection._duck.register('held', table).execute('FROM held')",
        "tests/sqlfront/test_snapshots.py -k in_the_way",
    ),
    Fault(
        "a statement's deletes are inserts", "sqlfront/dml.py",
        "SELECT *, -1 AS __weight FROM", "SELECT *, 1 AS __weight FROM", "tests/sqlfront/test_change_table_dml.py",
    ),
    Fault(
        "a DELETE of one copy deletes all", "sqlfront/write_through.py",
        "__held + __weight AS copies", "0 AS copies", "tests/sqlfront/test_change_tables.py",
    ),
    Fault(
        "a delete finds no NULL", "sqlfront/write_through.py",
        't.{quote(c.name)} IS NOT DISTINCT FROM n.{quote(c.name)}"', 't.{quote(c.name)} = n.{quote(c.name)}"',
        "tests/sqlfront/test_change_tables.py",
    ),
    # Binding, serving, the catalog.
    Fault(
        "an aggregate without GROUP BY has no row over nothing", "sqlfront/binder.py",
        "scalar=selection.scalar,", "scalar=False,", "tests/sqlfront/test_binder.py",
    ),
    Fault(
        "HAVING is forgotten", "sqlfront/binder.py",
        "having=render(output.having) if output.having else None", "having=None", "tests/sqlfront/test_binder.py",
    ),
    Fault(
        "a look-up compares in the wrong type", "sqlfront/lookups.py",
        "if value is MISSING or not compares_as(codec.type, value):", "if value is MISSING:",
        "tests/sqlfront/test_serving.py -k look_ups",
    ),
    Fault(
        "a plain view's own column names are dropped", "sqlfront/freeze.py",
        "if names else \"\"\n        return f\"(SELECT *", "if False else \"\"\n        return f\"(SELECT *",
        "tests/sqlfront/test_freeze.py -k never_change",
    ),
    Fault(
        "a renamed column is not followed", "sqlfront/freeze.py",
        "if token.name.casefold() in columns\n            ]", "if token.name in ()\n            ]",
        "tests/sqlfront/test_ddl.py -k renamed_column",
    ),
    Fault(
        "views come back before what they read", "sqlfront/persistence.py",
        "ORDER BY scan", "ORDER BY scan DESC", "tests/sqlfront/test_views_on_views.py -k file",
    ),
    Fault(
        "a lost change table is taken for an empty one", "sqlfront/persistence.py",
        "table.lost = database.engine.epoch", "table.lost = None", "tests/sqlfront/test_reopen.py -k lost_until",
    ),
    Fault(
        "an epoch is logged after its COMMIT", "sqlfront/transactions.py",
        "                logged = self._log(changes)\n                signals.check()\n",
        "                signals.check()\n            logged = self._log(changes)\n",
        "tests/sqlfront/test_durable.py -k killed",
    ),
    Fault(
        "an offset is forgotten at COMMIT", "sqlfront/transactions.py",
        "database.offsets |= self._offsets", "pass", "tests/sqlfront/test_durable.py -k offsets",
    ),
    Fault(
        "a batch that comes again is taken again", "sqlfront/streaming.py",
        'number <= last["batch"]', 'number < last["batch"]', "tests/spark/test_exactly_once.py -k comes_again",
    ),
    Fault(
        "an image before an update is taken for an insert", "storage/change_shapes.py",
        "IN ('delete', 'update_preimage') THEN -1", "IN ('delete', 'update_preimage') THEN 1",
        "tests/storage/test_sources.py -k each_shape",
    ),
    Fault(
        "Spark nets rows only where nobody would gain", "storage/change_shapes.py",
        "and not any(key <= read for key in self.keys)", "and any(key <= read for key in self.keys)",
        "tests/storage/test_sources.py -k repeat",
    ),
    Fault(
        "a part of an execution reads the present epoch", "sqlfront/spark/server.py",
        'wanted = ("session", "execution", "view", "columns", "where", "order_by", "limit")',
        'wanted = ("session", "execution", "view", "columns", "where", "order_by", "limit", "part")',
        "tests/spark/test_serving.py -k parts_of_an_execution",
    ),
    Fault(
        "a copy deletes all copies of a row", "storage/sinks.py",
        "WHERE k <= n", "WHERE true", "tests/sqlfront/test_copies.py -k is_the_view",
    ),
    Fault(
        "a copy in Parquet has equal rows once", "storage/sinks.py",
        "EXCEPT ALL (FROM {_GOING})) UNION ALL", "EXCEPT ALL (FROM {_GOING})) UNION",
        "tests/sqlfront/test_copies.py -k dies",
    ),
    Fault(
        "a copy does not miss what has been taken from it", "storage/sinks.py",
        "deleted == self._count", "deleted <= self._count", "tests/sqlfront/test_copies.py -k taken",
    ),
    Fault(
        "compaction keeps what it has replaced", "storage/change_log.py",
        'con.execute(f"DELETE FROM {table} WHERE rowid <= {last}")', "pass",
        "tests/sqlfront/test_durable.py -k compacted",
    ),
    Fault(
        "the log of a table that keeps no rows is not replayed", "sqlfront/database.py",
        "replayed = self.replaying and table.durable", "replayed = False", "tests/sqlfront/test_durable.py -k survives",
    ),
    Fault(
        "epoch numbers are not reserved", "sqlfront/persistence.py",
        "_write_epoch(database, database.epoch_limit)", "_write_epoch(database, database.engine.epoch)",
        "tests/sqlfront/test_reopen.py -k crash",
    ),
    Fault(
        "one bad row locks a file", "sqlfront/persistence.py",
        "    except Error as error:\n        reason", "    except ZeroDivisionError as error:\n        reason",
        "tests/sqlfront/test_bad_rows.py -k lock_a_file",
    ),
    Fault(
        "a reader is left open at a bad row", "sqlfront/build.py",
        "undo.callback(rows.close)", "rows.gi_frame", "tests/sqlfront/test_bad_rows.py -k late",
    ),
    # Unions of queries.
    Fault(
        "only one branch of a union changes in an epoch", "maintenance/engine.py",
        "for c in changes])", "for c in changes[:1]])", UNIONS + " -k changes_sides",
    ),
    Fault(
        "what passes rows on is taken for a store that is filled", "maintenance/state.py",
        'f"passed on by {view.name}" if', '"passed on" if', UNIONS + " -k stored_once",
    ),
    Fault(
        "a branch of a table that keeps no rows keeps none either", "sqlfront/build.py",
        "definition.atoms[0].table not in unchecked", "unchecked is not None", UNIONS + " -k keeps_no_rows",
    ),
    # Views on views, and changes out.
    Fault(
        "a view does not know the tables behind its sources", "sqlfront/build.py",
        "tables = tables.union(*(source.tables for source in fed.values()))", "tables = set(tables)",
        "tests/sqlfront/test_plain_views.py -k stays_in_use",
    ),
    Fault(
        "views are fed before what they read", "maintenance/outlets.py",
        "for relation, views in self._fed.items()]", "for relation, views in reversed(self._fed.items())]",
        "tests/sqlfront/test_views_on_views.py -k one_epoch",
    ),
    Fault(
        "the changes of the epoch before are told again", "maintenance/outlets.py",
        "                member.forget_change()", "                member.delta",
        "tests/sqlfront/test_subscribe.py -k replayed",
    ),
    Fault(
        "later stages are not undone", "maintenance/engine.py",
        "                    done += stage", "                    done += stage if stage is encoded else []",
        "tests/sqlfront/test_views_on_views.py -k random_changes",
    ),
    Fault(
        "a change ends with the first view it feeds", "maintenance/engine.py",
        "            touched |= {item.relation.name for item in stage}",
        "            touched |= {item.relation.name for item in encoded}",
        "tests/sqlfront/test_views_on_views.py -k one_epoch",
    ),
    Fault(
        "a change is told though it has no partner", "maintenance/emission.py",
        '            if step.access == "filter" or not sibling.node.connex:\n                self.free.append(step)',
        '            if step.access == "filter" or not sibling.node.connex:\n                pass',
        "tests/sqlfront/test_subscribe.py -k replayed",
    ),
    Fault(
        "rows that cancel in an epoch are told", "maintenance/output_change.py",
        "positions, weights = net(rows.columns, weights)", "positions = np.arange(len(weights))",
        "tests/sqlfront/test_views_on_views.py -k cancel",
    ),
    Fault(
        "what was there before is what is there now", "maintenance/output_change.py",
        'combine([(1, self.values("after", part)), (-1, self.values("change", part))])',
        'combine([(1, self.values("after", part))])', "tests/sqlfront/test_subscribe.py -k replayed",
    ),
    Fault(
        "an atom folds onto one that may be NULL", "planner/core.py",
        " or (needed and term not in self._never_null)", "", "tests/planner/test_core.py -k null_joins_nothing",
    ),
    Fault(
        "leaf changes are extended one by one", "maintenance/emission.py",
        "if self.supports or any(step.lists for step in emission.free):", "if self.supports:",
        "tests/maintenance/test_emission.py -k added_up",
    ),
    Fault(
        "groups that only companions see change are not told", "maintenance/companion_change.py",
        "        rows.append(groups)\n", "        rows.append(groups[:0])\n",
        "tests/sqlfront/test_subscribe.py -k only_the_extrema",
    ),
    Fault(
        "companions are not rewound for the former image", "maintenance/companion_change.py",
        "rows, machine, -1)", "rows, machine, 0)", "tests/sqlfront/test_subscribe.py -k only_the_extrema",
    ),
    Fault(
        "an overflow goes unnoticed", "storage/expression_kernels.py",
        "refused |= 1 if value < low or value > high else 0", "refused |= 0", EXPRESSIONS,
    ),
    Fault(
        "NULL is less than any number", "storage/expression_kernels.py",
        "if kind <= LESS_EQUAL and (a == NULL_CODE or b == NULL_CODE):", "if kind > LIKE:", EXPRESSIONS,
    ),
    Fault(
        "what LIKE finds may overlap", "storage/expression_kernels.py",
        "text += place + size", "text += place", EXPRESSIONS,
    ),
    Fault(
        "decimals of two scales are compared as they are", "maintenance/expressions.py",
        "return self._add(kernels.MULTIPLY, value, self._word(10 ** (after - before)), *_bounds(goal))", "return value",
        EXPRESSIONS,
    ),
    Fault(
        "text constants are swept", "storage/dictionary.py",
        "self.refs[code] += 1", "self.refs[code] += 0", EXPRESSIONS + " -k outlive",
    ),
    Fault(
        "a computed item has the place of a column of that name", "maintenance/relation.py",
        "quote(source) if source is not None else expression, type_), item", "source or expression, type_), item",
        EXPRESSIONS + " -k named",
    ),
    Fault(
        "a joined variable counts once for each leaf in a ranked key", "maintenance/ranked.py",
        "            if variable in before:", "            if variable in ():",
        RANKED + " -k self_joined_sum",
    ),
    Fault(
        "every child of a cell is advanced, whatever was advanced last", "storage/any_k_kernels.py",
        "load(load(read, CELLS) + expanded * load(read, CELL_WORDS) * 8, ADVANCED), children)", "0, children)",
        RANKED + " -k each_met_once",
    ),
    Fault(
        "rows that are derived twice are put out twice under DISTINCT", "storage/any_k_kernels.py",
        "if distinct == 0 or last < 0", "if distinct >= 0 or last < 0",
        RANKED + " -k worked_projection",
    ),
    Fault(
        "a changed best is not told to the parent", "storage/rank_kernels.py",
        "        if same:\n            release(group", "        if same or head != 0:\n            release(group",
        RANKED + " -k failing_epoch",
    ),
    Fault(
        "NULL comes last whatever is asked for", "maintenance/ranked.py",
        "nulls = 0 if term.nulls_first else at.ORDER_NULLS_LAST", "nulls = at.ORDER_NULLS_LAST",
        ORDERED + " -k frozen",
    ),
    Fault(
        "rows with a NULL sum stay as they are found", "maintenance/top.py",
        "self._batch = self._take(capacity)\n        while",
        "self._batch = self._answers.fetch(capacity)\n        while",
        RANKED + " -k null_sum",
    ),
    Fault(
        "a look-up narrows a view before its LIMIT", "sqlfront/lookups.py",
        "reference.equalities if entry.definition.limit is None else ()", "reference.equalities",
        ORDERED + " -k no_tree_keeps",
    ),
    Fault(
        "rows that tie in a GREATEST are in no order of their own", "sqlfront/bind_composed.py",
        "first = 2 if len", "first = 1 + len(operands) if len",
        COMPOSED + " -k random_streams",
    ),
    Fault(
        "the least of values is compared as the greatest", "maintenance/ranked.py",
        '"least": at.ORDER_LEAST', '"least": at.ORDER_GREATEST',
        COMPOSED + " -k random_streams",
    ),
    Fault(
        "a rounded sum is put out in the order of its bound", "maintenance/window.py",
        "for place, term in self._rounded.items():", "for place, term in []:",
        ROUNDED + " -k rounding_decides",
    ),
    Fault(
        "rows leave the window before others that tie with them", "maintenance/window.py",
        "            if not is_exact:\n", "            if not is_exact and place < 0:\n",
        ROUNDED + " -k random_streams",
    ),
    Fault(
        "the rest of a group whose first rows have been read is read too", "maintenance/window.py",
        "            self._skip()\n", "",
        ROUNDED + " -k rest_of_a_group",
    ),
    Fault(
        "a bound allows for no rounding", "storage/bound_kernels.py",
        "value -= error * (abs(value) + parts * _FEW)", "value -= error * 0",
        BOUNDS + " -k between",
    ),
    Fault(
        "what cancels a large number counts as little", "storage/bound_kernels.py",
        "        high = _NONE\n", "        high = -_CAP\n",
        BOUNDS + " -k rounded_sum_is_between",
    ),
    Fault(
        "a product of what may be negative has a tree", "sqlfront/bind_composed.py",
        'if form == "product" and not self._is_at_least_zero(operand):', 'if form == "sum":',
        COMPOSED + " -k says_why",
    ),
    Fault(
        "a LATERAL block's first rows are those of all rows", "sqlfront/bind_derived.py",
        "partition = [mine for mine, _ in pairs] or asked.partition", "partition = asked.partition",
        BLOCKS + " -k own_first_rows",
    ),
    Fault(
        "what ties in a block is left open in the stored query", "sqlfront/ddl.py",
        "    query = completed_blocks(query, definition)\n", "",
        BLOCKS + " -k settled",
    ),
    Fault(
        "a group goes on counting where the one before it ended", "maintenance/output.py",
        "ends -= np.maximum.accumulate(np.where(starts, ends - counts, 0))", "ends -= 0",
        QUALIFY + " -k random_streams",
    ),
    Fault(
        "the rows of all groups are numbered together", "maintenance/output_change.py",
        'limit.number(", ".join(f"({expression})" for expression in limit.by), sorting)', 'limit.number("1", sorting)',
        QUALIFY + " -k random_streams",
    ),
    Fault(
        "count(*) of a sorted view forgets its LIMIT", "maintenance/output.py",
        "return _core_rows(view) if limit is None else limit.rows_of(_core_rows(view))", "return _core_rows(view)",
        ORDERED + " -k counts_its_first_rows",
    ),
    Fault(
        "the words of a distinct row lie at the start of what each piece finds", "maintenance/top.py",
        "return addresses[:, self._places[:, 0]] + 8 * self._places[:, 1], keys",
        "return addresses[:, self._places[:, 0]], keys", "tests/sqlfront/test_stars.py",
    ),
    Fault(
        "what heavy ends meet is not stored", "planner/stars.py",
        'pieces = [_piece(edges, dict.fromkeys(parted, "H"), stored)]', "pieces = []", "tests/sqlfront/test_stars.py",
    ),
    Fault(
        "what ties is told apart by the output columns", "sqlfront/bind_order.py",
        "    if total:\n        items += [defaults", "    if True:\n        items += [defaults",
        "tests/sqlfront/test_ties.py",
    ),
]  # fmt: skip


def copy_tree(directory: Path) -> Path:
    """A copy of the tree to be faulted; compiled kernels are kept in it too, from one run to the next."""
    for name in ("sqlfront", "maintenance", "planner", "storage", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", directory)
    return directory


def is_caught(fault: Fault, tree: Path) -> bool:
    """Whether the quick test fails on a copy of the tree with the fault in it, and passes on one without."""
    if not passes_unchanged(fault.caught_by, tree):
        raise ValueError(f"{fault.caught_by} fails without any fault")
    with _applied(fault, tree / fault.file):
        code = _run(fault.caught_by, tree)
    return code == 1 or code < 0


@cache
def passes_unchanged(tests: str, tree: Path) -> bool:
    """Whether tests pass on the copy as it is: only then does a failure prove anything."""
    return _run(tests, tree) == 0


@contextmanager
def _applied(fault: Fault, path: Path) -> Iterator[None]:
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has its text {text.count(fault.old)} times, not once")
    kept = path.rename(path.with_suffix(".kept"))  # With its time, by which numba knows what it has compiled.
    path.write_text(text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        kept.replace(path)


def _run(tests: str, tree: Path) -> int:
    """pytest's exit code: 1 when a test has failed."""
    environment = dict(os.environ, PYTHONPATH=str(tree), HYPOTHESIS_PROFILE="unshrunk")
    environment["SQLFRONT_CACHE_DIR"] = str(tree / "cache")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split(" ")]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=900).returncode


def main(names: list[str]) -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        tree = copy_tree(Path(directory))
        for fault in FAULTS:
            if names and not any(name in fault.name for name in names):
                continue
            caught = is_caught(fault, tree)
            missed += not caught
            print("caught" if caught else "MISSED", fault.name, flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
