"""The one update loop: an interpreter of delta programs over tables.

A program is a list of operations on a *delta*, an array of rows (key words, then values). A path starts
at the leaf's delta, looks up or expands sibling views, multiplies, and adds the result to the views
above. Every operation works on a whole block; EXTEND and RANGE, whose output may be large, stop at CHUNK rows,
let the rest of the path run, and are resumed from where they stopped.
"""

from __future__ import annotations

from sqlfront.storage.kernels.boxes.box_sums import step_box_sum
from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    AGGREGATE,
    APPEND,
    BAD_ROW,
    BAD_TABLE,
    BALANCE,
    BARRIER,
    BOX_SUM,
    BUFFERS,
    CHECK,
    CHUNK,
    CLEAR,
    COMMITTED,
    COUNTERS,
    DIRTY_USED,
    END,
    EPOCHS,
    EXTEND,
    FLAGS,
    HAS_RUN,
    HEAVY,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LARGEST,
    LIFT,
    LIMBS,
    NOTE,
    OVERFLOW,
    PATH,
    PATH_END,
    PROBE,
    PROJECT,
    RANGE,
    RANGE_SUM,
    RANK,
    REFUSED,
    ROUTE,
    ROW_CHANGES,
    ROW_SCRATCH,
    ROW_STAGE,
    ROWS,
    RUNS,
    SCALE,
    SCAN,
    SCANNED,
    SETTLE,
    SHRINK,
    SIGN,
    SKIP_ALONE,
    SKIP_LIGHT,
    STACK,
    STATUS,
    STEPS,
    SWEEP,
    TEAM_FLAGS,
    TEAM_SIZE,
    TRANSITION,
    UPSERT,
    USED,
    VALUES,
    VIOLATION,
    WIDTH,
)
from sqlfront.storage.kernels.lowering import python_object, types
from sqlfront.storage.kernels.memory import load, load_shared, or_shared, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.programs.barrier import wait_for
from sqlfront.storage.kernels.programs.extend import step_extend
from sqlfront.storage.kernels.programs.look_ahead import list_lookups, look_ahead
from sqlfront.storage.kernels.programs.net import net_rows
from sqlfront.storage.kernels.programs.probe import step_probe, step_project
from sqlfront.storage.kernels.programs.python_rows import address_of, pack_row
from sqlfront.storage.kernels.programs.rank import step_rank
from sqlfront.storage.kernels.programs.route import alone, step_balance, step_note, step_route, step_settle, step_status
from sqlfront.storage.kernels.programs.support import step_sign, step_transition
from sqlfront.storage.kernels.tables.appended_rows import room_behind, step_append
from sqlfront.storage.kernels.tables.delta import buffer, emit, lift, step_aggregate, step_scale, step_upsert
from sqlfront.storage.kernels.tables.hash_table import clear, first_negative, sweep
from sqlfront.storage.kernels.tables.range_scan import step_range, step_range_sum
from sqlfront.storage.kernels.tables.upkeep import wants_shrink

_AHEAD, _FEW = 8, 64


@kernel("int64(int64,int64,int64,int64)")
def step_scan(at, scratch, first, rows):
    """[SCAN, length, table]: the delta is the table's own rows first..first+rows-1, those that are live."""
    table = load(at, 2)
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = keys + load(table, VALUES) * limbs
    out = buffer(scratch, 0, width * rows)
    kept = 0
    for row in range(first, min(first + rows, load(table, USED))):
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        if sign_of(address, keys, limbs) != 0:
            for i in range(width):
                store(out, kept * width + i, load(address, i))
            kept += 1
    store(scratch, STEPS, load(scratch, STEPS) + rows)
    return kept


@kernel("void(int64,int64,int64)")
def count_steps(scratch, owner, before):
    """Add the steps taken since there were `before` to the counter of view number `owner`."""
    counter = load(scratch, COUNTERS) + owner * 8
    store(counter, 0, load(counter, 0) + load(scratch, STEPS) - before)


@kernel("void(int64,int64)")
def step_sweep(at, scratch):
    """[SWEEP, length, owner, n, tables...]: sweep tables; note if one of them or of their groups should shrink."""
    for i in range(load(at, 3)):
        table = load(at, 4 + i)
        if load(table, DIRTY_USED) == 0:
            continue
        steps = load(scratch, STEPS)
        shrink = sweep(table, scratch)
        count_steps(scratch, load(at, 2), steps)
        for x in range(load(table, INDEXES)):
            shrink |= wants_shrink(load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0))
        if shrink != 0:
            store(scratch, FLAGS, load(scratch, FLAGS) | SHRINK)


@kernel("void(int64,int64,int64,int64,int64)")
def open_frame(frame, at, delta, width, rows):
    """Note the delta that an EXTEND step, which is about to begin with it, lists partners of, some at a time."""
    store(frame, 0, at)
    store(frame, 1, delta)
    store(frame, 2, width)
    store(frame, 3, rows)
    store(at, 4, 0)
    store(at, 5, 0)


@kernel("void(int64,int64)")
def step_check(at, scratch):
    """[CHECK, length, owner, n, tables...]: note the first row of a store whose count is below zero."""
    for i in range(load(at, 3)):
        table = load(at, 4 + i)
        if load(table, DIRTY_USED) > 0 and load(scratch, FLAGS) & VIOLATION == 0:
            row = first_negative(table)
            if row >= 0:
                store(scratch, BAD_TABLE, table)
                store(scratch, BAD_ROW, row)
                store(scratch, FLAGS, load(scratch, FLAGS) | VIOLATION)


@kernel("void(int64,int64,int64)")
def run_aside(operation, at, scratch):
    """A step that takes no delta from the one before it."""
    steps = load(scratch, STEPS)
    if operation == CLEAR:
        clear(load(at, 2))
    elif operation == CHECK:
        step_check(at, scratch)
    elif operation == SWEEP:
        step_sweep(at, scratch)
    elif operation == SETTLE:
        step_settle(at, scratch)
        count_steps(scratch, load(at, 2), steps)
    elif operation == BALANCE:
        step_balance(at, scratch)
    elif operation == BARRIER:  # [BARRIER, length, barrier, threads]
        wait_for(load(at, 2), load(at, 3))
    elif operation == RANK:
        step_rank(at, scratch)
        count_steps(scratch, load(at, 2), steps)


@kernel("void(int64,int64,int64,int64,int64,int64)")
def run(program, scratch, data, first, rows, sign):
    """Run a program over `rows` (at most CHUNK) rows of encoded data, from row `first`, weights times `sign`."""
    pc = program
    delta = 0
    width = 0
    n = 0
    leaf_width = 0
    leaf_rows = 0
    steps = load(scratch, STEPS)
    owner = 0
    store(scratch, LARGEST, 0)
    store(scratch, SCANNED, load(scratch, SCANNED) + rows)
    stack = load(scratch, STACK)
    depth = 0
    while True:
        operation = load(pc, 0)
        after = pc + load(pc, 1) * 8
        if operation == LIFT:
            leaf_rows = lift(pc, scratch, data, first, rows, sign)
            leaf_width = load(pc, 3) + (1 + load(pc, 4)) * load(pc, 5)
        elif operation == SCAN:
            leaf_rows = step_scan(pc, scratch, first, rows)
            table = load(pc, 2)
            leaf_width = load(table, KEYS) + load(table, VALUES) * load(table, LIMBS)
        elif operation == PATH:
            owner = load(pc, 2)
            delta = load(scratch, BUFFERS)
            width = leaf_width
            n = leaf_rows
            steps = load(scratch, STEPS)
        elif operation == UPSERT:
            if n > 0:
                step_upsert(pc, scratch, delta, n)
        elif operation == APPEND:
            if n > 0:
                step_append(pc, scratch, delta, n)
        elif operation in (PROBE, EXTEND, RANGE, RANGE_SUM, BOX_SUM, PROJECT):
            # A step that lists stops at CHUNK rows. Its frame keeps the delta that it reads. PATH_END jumps back to the
            # innermost frame until that step says that it is done.
            lists = operation in (EXTEND, RANGE)
            frame = stack + 32 * depth
            if lists and depth > 0 and load(frame, -4) == pc:
                delta, width, n = load(frame, -3), load(frame, -2), load(frame, -1)
            elif n == 0:
                pc = after
                continue
            elif lists:
                open_frame(frame, pc, delta, width, n)
                depth += 1
            if lists:
                found = (
                    step_extend(pc, scratch, delta, width, n)
                    if operation == EXTEND
                    else step_range(pc, scratch, delta, width, n)
                )
                if load(pc, 4) < 0:  # Done: this batch is the last, and PATH_END comes back here no more.
                    depth -= 1
            elif operation == PROBE:
                found = step_probe(pc, scratch, delta, width, n)
            elif operation == RANGE_SUM:
                found = step_range_sum(pc, scratch, delta, width, n)
            elif operation == BOX_SUM:
                found = step_box_sum(pc, scratch, delta, width, n)
            else:
                found = step_project(pc, scratch, delta, width, n)
            emitter = pc + load(pc, 3) * 8
            width = load(emitter, 1) + load(emitter, 2) * load(emitter, 3)
            if load(after, 0) == APPEND:  # Rows that are only appended are made where they are to lie.
                delta = room_behind(load(after, 2), found)
            else:
                delta = buffer(scratch, load(emitter, 0), max(1, width * found))
            emit(emitter, scratch, delta, found)
            n = found
        elif operation == ROUTE:
            n = step_route(pc, scratch, delta, width, n)
            delta = load(scratch, BUFFERS + 3 * load(pc, 2))
            # No row has this label: nothing until the path's end could see one. PATH_END still has to close frames.
            while n == 0 and load(after, 0) != PATH_END:
                after += load(after, 1) * 8
        elif operation == AGGREGATE:
            table = load(pc, 2)
            if depth > 0:  # A delta that comes in pieces is added up whole.
                if n > 0:
                    step_upsert(pc, scratch, delta, n)
                after = load(stack, 4 * (depth - 1))
            else:
                n = step_aggregate(pc, scratch, delta, n)
                delta = load(scratch, BUFFERS + 3 * load(pc, 3))
                width = load(table, KEYS) + load(table, VALUES) * load(table, LIMBS)
        elif operation == TRANSITION:
            n = step_transition(pc, scratch, delta, width, n)
        elif operation == SIGN:
            n = step_sign(pc, delta, width, n)
        elif operation == SCALE:
            step_scale(pc, scratch, delta, width, n)
        elif operation == STATUS:
            step_status(pc, scratch, delta, width, n)
        elif operation == SKIP_LIGHT:
            if leaf_rows == 0 or load(scratch, HEAVY) == 0:
                after = pc + load(pc, 2) * 8
        elif operation == SKIP_ALONE:
            if alone(pc, load(scratch, BUFFERS), leaf_rows):
                after = pc + load(pc, 2) * 8
        elif operation == NOTE:
            step_note(pc, scratch, delta, width, n)
        elif operation == PATH_END:
            if depth > 0:  # A listing step has more rows: back to it.
                after = load(stack, 4 * (depth - 1))
            else:
                count_steps(scratch, owner, steps)
        elif operation == END:
            return
        else:
            run_aside(operation, pc, scratch)
        pc = after


@kernel("void(int64,int64,int64,int64,int64,int64)")
def run_rows(body, scratch, data, first, rows, sign):
    """Run a body over any number of rows from row `first`, in chunks."""
    end = first + rows
    while first < end:
        run(body, scratch, data, first, min(CHUNK, end - first), sign)
        first += CHUNK


@kernel("int64(int64,int64,int64,int64)")
def run_epoch(entries, count, scratch, sign):
    """Run an epoch in one call, so that nothing can come in between; returns the flags.

    An entry is (body, check program, sweep program, data, rows). All bodies run, then the checks, then, if
    nothing failed, the sweeps. With sign -1, which undoes an epoch, there are no checks. RUNS counts the calls.
    """
    store(scratch, FLAGS, 0)
    store(scratch, RUNS, load(scratch, RUNS) + 1)
    for i in range(count):
        run_rows(load(entries, 5 * i), scratch, load(entries, 5 * i + 3), 0, load(entries, 5 * i + 4), sign)
    if sign < 0:
        store(scratch, FLAGS, 0)
    elif load(scratch, FLAGS) & OVERFLOW == 0:
        for i in range(count):
            run(load(entries, 5 * i + 1), scratch, 0, 0, 0, 1)
    if load(scratch, FLAGS) == 0:
        for i in range(count):
            run(load(entries, 5 * i + 2), scratch, 0, 0, 0, 1)
    return load(scratch, FLAGS)


@kernel("int64(int64,int64,int64,int64,boolean)")
def run_share(entries, count, scratch, team, leads):
    """Run the share that one thread of a team has in an epoch, as `run_epoch` does; returns the flags of all.

    Each thread has entries with its own programs, and scratch space of its own. One of them `leads`: it counts the run,
    and checks.
    """
    store(scratch, FLAGS, 0)
    if leads:
        store(scratch, RUNS, load(scratch, RUNS) + 1)
    for i in range(count):
        run_rows(load(entries, 5 * i), scratch, load(entries, 5 * i + 3), 0, load(entries, 5 * i + 4), 1)
    or_shared(team, TEAM_FLAGS, load(scratch, FLAGS))
    wait_for(team, load(team, TEAM_SIZE))
    if leads:
        if load_shared(team, TEAM_FLAGS) & OVERFLOW == 0:
            for i in range(count):
                run(load(entries, 5 * i + 1), scratch, 0, 0, 0, 1)
        or_shared(team, TEAM_FLAGS, load(scratch, FLAGS))
    wait_for(team, load(team, TEAM_SIZE))
    if load_shared(team, TEAM_FLAGS) == 0:
        wait_for(team, load(team, TEAM_SIZE))  # Nobody sets a flag before all have read that there is none.
        for i in range(count):
            run(load(entries, 5 * i + 2), scratch, 0, 0, 0, 1)
        or_shared(team, TEAM_FLAGS, load(scratch, FLAGS))
    wait_for(team, load(team, TEAM_SIZE))
    return load_shared(team, TEAM_FLAGS)


@kernel("int64(int64)")
def run_packed(entry):
    """Run and commit an entry's epoch; its number, or the flags below zero if it is not committed."""
    scratch = load(entry, ROW_SCRATCH)
    stage = load(entry, ROW_STAGE)
    store(stage, 0, HAS_RUN)
    flags = run_epoch(entry, 1, scratch, 1)
    if flags != 0:
        return -flags
    store(stage, 0, COMMITTED)
    changes = load(entry, ROW_CHANGES)
    store(changes, 0, load(changes, 0) + load(entry, 4))
    number = load(scratch, EPOCHS) + 1
    store(scratch, EPOCHS, number)
    return number


@kernel("int64(int64,int64,int64,int64,int64,int64,int64)")
def run_each(entry, end, each, width, slots, mask, lookups):
    """Run and commit an epoch for every `each` rows from the entry's data to the address `end`; returns 0.

    It stops at an epoch with flags and returns them; the entry's data and rows are then those of this epoch, which is
    not committed. With `mask` > 0 each epoch is netted first (see net_rows). `lookups` has room for MOST_LOOKUPS.
    """
    scratch = load(entry, ROW_SCRATCH)
    size = width * 8
    count = list_lookups(load(entry, 0), lookups) if each <= _FEW else 0
    while load(entry, 3) < end:
        data = load(entry, 3)
        rows = min(each, (end - data) // size)
        for stage in range(3 if count > 0 else 0):
            first = data + (3 - stage) * _AHEAD * size
            for row in range(first, min(first + rows * size, end), size):
                look_ahead(lookups, count, scratch, row, stage)
        store(entry, 4, net_rows(data, rows, width, slots, mask, False) if mask > 0 else rows)
        flags = -run_packed(entry)
        if flags > 0:
            return flags
        store(entry, 3, data + rows * size)
    return 0


@kernel(types.int64(types.int64, python_object, python_object), held=True)
def run_row(entry, row, weight):
    """`run_packed` a tuple and its weight; -REFUSED if they cannot be packed, and nothing is changed.

    It keeps the GIL: for a microsecond it is not worth while to give it away and ask for it back.
    """
    if pack_row(entry, address_of(row), address_of(weight)) == 0:
        return -REFUSED
    return run_packed(entry)


@kernel(types.int64(types.int64, python_object, python_object), held=True)
def place_row(entry, row, weight):
    """Only `pack_row`, for what has to be computed from the row before it is run."""
    return pack_row(entry, address_of(row), address_of(weight))


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def run_program(program, scratch, data, first, rows, sign):
    """Run one program over rows from row `first`; returns the flags."""
    store(scratch, FLAGS, 0)
    if rows > 0:
        run_rows(program, scratch, data, first, rows, sign)
    return load(scratch, FLAGS)
