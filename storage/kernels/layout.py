"""Where everything lies: table headers, rows, scratch space, and the words of a delta program.

A **table** is a header of HEADER_WORDS words that never moves. Its rows are WIDTH words each:

    key words | values (LIMBS words each, the row count first) | two link words per index | tail

A value is a little-endian two's complement integer of LIMBS words; value 0 is the row's count. The link words of index
i hold the next and previous member (32-bit row numbers plus one; after the last comes 0, before the first the last),
the member's group row and, if the index is not ordered, the next member but one. A **group table** (the other side of
an index) ends its rows with a tail: one word with the list's head and the group's size.
At most one index is **ordered**: its lists are sorted (see ordered_group), its rows have a word more, at TAIL, and so
have its groups, for the tree's root. With **subtree sums** (SUMS values of one limb more than the row's, see
subtree_sums) they follow TAIL. With **subtree summaries** (see subtree_summaries) a row has a word for each, the first
before TAIL, the second before that: the number, plus one, of the row below it, or itself, that is last in a second
order; or the number of groups of peers that begin at the row or below it.
In a **ranked** table (see rank) index 0 is ordered, by RANKS words that follow TAIL instead of by key words,
and a word of state follows these; a row is in its list only while it is PLACED.
A **slot** holds a 31-bit hash and a row number plus one; slots are probed linearly.
"""

from __future__ import annotations

NULL_CODE = -(2**63)
# What stands for the BIGINT that equals NULL_CODE; no type whose codes are summed has it for another value.
RESERVED_LOW = NULL_CODE + 0x5EED_0DD5_11ED
MARK = -(2**63)
CHUNK = 2048

# Table header words.
KEYS, VALUES, LIMBS, WIDTH, INDEXES = 0, 1, 2, 3, 4
SLOTS, MASK, ROWS, CAPACITY, USED, FREE, LIVE = 5, 6, 7, 8, 9, 10, 11
DIRTY, DIRTY_USED, DIRTY_CAPACITY = 12, 13, 14
TAIL, LINKS = 15, 16
INDEX_LIST, REFERENCES, REFERENCE_LIST = 17, 18, 19
OWNER, OWNER_INDEX = 20, 21
ORDER = 22
RANKS, TOUCHED, TOUCHED_USED, TOUCHED_CAPACITY = 23, 24, 25, 26
SUMS, SUMMARIES = 27, 28
# How many bytes at SLOTS and ROWS are those of a file, mapped; 0 where the memory is the C allocator's.
# A spilled array (see spilled_memory) has SPILLED in this word, too.
SLOTS_MAPPED, ROWS_MAPPED = 29, 30
SPILLED = 1
# Where large arrays are spilled to (0: nowhere): the address and the words of the files' path, the least size, and the
# error of the last file that found no room.
SPILL = 31
SPILL_PATH, SPILL_PATH_WORDS, SPILL_LEAST, SPILL_ERROR, SPILL_WORDS = range(5)
# A bit for each row of a spilled table: whether it has changed lately (see hot_rows). The address of their words, which
# as many follow, with the bits before they were cleared; the words' number, the one that was cleared last, and the row
# that was last looked at.
HOT_BITS, HOT_WORDS, HOT_CLEARED, HOT_HAND = range(32, 36)
# The rows that wait for a table (see write_buffer): whether any may, the table that holds them, a bound of the last
# words of all values, and the part of the table that takes them in next.
BUFFERED, WRITE_BUFFER, BUFFER_BOUND, BUFFER_PART = range(36, 40)
# Where sums over boxes are kept (0: they are not).
BOXES = 40
HEADER_WORDS = 41

# An entry of INDEX_LIST: the group table's header, the number of its key words, their places in the row.
INDEX_ENTRY = 2

# The list at ORDER (0: no index is ordered): the index x (-1 - x while it is left unsorted, see sorted_groups), the
# number of places, and (place, kind, operand) for each.
ORDER_INDEX, ORDER_COUNT, ORDER_ENTRY = 0, 1, 2
# The list at SUMMARIES (0: rows have none): their number, and for each its kind and the address of such a list.
SUMMARY_ENTRY = 1
SUMMARY_EXTREME, SUMMARY_PEERS = 0, 1
# How the words at a place compare: signed, where the operand (if not 0) stands for the least value or for the
# greatest; unsigned; as the byte strings of a dictionary whose state is the operand; or several words together,
# their number times GROUP_WORDS and the word's place among them times GROUP_PLACE being added (see composed_terms).
ORDER_WORD, ORDER_HIGH, ORDER_LOW_WORD, ORDER_BYTES = range(4)
ORDER_GREATEST, ORDER_LEAST, ORDER_PRODUCT = range(4, 7)
GROUP_WORDS, GROUP_PLACE = 1 << 8, 1 << 16
# Added to the kind: greater words come first; NULL comes last.
ORDER_DESCENDING, ORDER_NULLS_LAST, ORDER_KIND = 16, 32, 15

# Which outcomes of a comparison a test of PROJECT, RANGE or RANGE_SUM lets pass.
PASS_LESS, PASS_EQUAL, PASS_GREATER = 1, 2, 4

# The state of a row of a ranked table: in its group's list; noted as one to look at again.
PLACED, WAITING = 1, 2
# How a leaf of a ranked tree makes its rank words: a key word copied, plus a coefficient; a value times it added; or
# a bound of a floating number's share in a rounded sum (see rounding_bounds), its parts times RANK_PARTS being added.
RANK_COPY, RANK_ADD, RANK_ADD_LOWER, RANK_ADD_UPPER = range(4)
RANK_KIND, RANK_PARTS = 3, 4
# What a row of a ranked tree needs of a child: a row, a row or else one of NULLs, no row.
CHILD_REQUIRED, CHILD_OPTIONAL, CHILD_ABSENT = range(3)
# Bounds are in units of 2^-SHARE_UNIT; beyond 2^SHARE_LIMIT a number is as good as 2^SHARE_CAP units, or, the other
# way, as -2^SHARE_NONE units, which no others make good: from half of that on there is no bound.
SHARE_UNIT, SHARE_LIMIT, SHARE_CAP, SHARE_NONE = 52, 60, 112, 120
# Whole multiples of 2^-EXACT_UNIT below 2^EXACT_LIMIT are added without rounding, MOST_PARTS of them too.
EXACT_UNIT, EXACT_LIMIT, MOST_PARTS = 12, 20, 64

# Scratch words; each buffer is (address, capacity in words).
STEPS, FLAGS, HASHES, HASHES_CAPACITY = 0, 1, 2, 3
MATCHES, MATCHES_CAPACITY, TEMPORARY = 4, 5, 6
BAD_TABLE, BAD_ROW = 7, 8
STACK = 9
COUNTERS, RUNS, WAVES = 10, 11, 12
# Whether a row of the leaf's delta has a heavy value.
HEAVY = 13
# How many epochs have been committed.
EPOCHS = 14
# The members of the largest group that a new row has joined, in the chunk that runs.
LARGEST = 15
# How many rows programs have been run over.
SCANNED = 16
BUFFERS = 17
MAX_BUFFERS = 40
# The last buffer has a word for each row of a leaf's delta: which of its values are heavy.
STATUSES = MAX_BUFFERS - 1
SCRATCH_WORDS = BUFFERS + 3 * MAX_BUFFERS
TEMPORARY_WORDS = 640
# How many look-ups of a row are asked for ahead (programs/look_ahead.py).
MOST_LOOKUPS = 16
# The widest value: the sum of 2^64 fourth powers of any DOUBLE, whose digits span 4 * 2098 bits. A product's operands
# and result have room in TEMPORARY.
MAX_LIMBS = 133

# An entry of `run_epoch`: three programs, the address of the encoded rows, how many these are. Behind that of an epoch
# that a kernel commits come the address of the word that tells how far it has come; the scratch space; the address of
# the counter of the relation's changes. Behind that of a single row come also whether none of its words may be
# NULL_CODE; the columns of a Python row; the words, and for each the column it is, or the number of columns for the
# weight, or a greater one for 0.
ROW_STAGE, ROW_SCRATCH, ROW_CHANGES, ROW_CHECKED, ROW_COLUMNS, ROW_WORDS, ROW_SOURCES = range(5, 12)

# How far an epoch that a kernel commits has come.
HAS_RUN, COMMITTED = 1, 2

# A barrier: how many threads have come to it, and how often all had come. A team of threads that run an epoch together
# has one, then the number of its threads and the flags of all.
BARRIER_ARRIVED, BARRIER_COMPLETE, TEAM_SIZE, TEAM_FLAGS = range(4)
BARRIER_WORDS, TEAM_WORDS = 2, 4

# What a run reports.
OVERFLOW, VIOLATION, SHRINK, REBALANCE, REFUSED = 1, 2, 4, 8, 16

# Operations of a delta program: word 0 is the operation, word 1 its length.
END, LIFT, UPSERT, PROBE, EXTEND, PATH, PATH_END, CHECK, SWEEP, SCAN, PROJECT, AGGREGATE = range(12)
TRANSITION, SIGN, SCALE, CLEAR = 12, 13, 14, 15
STATUS, ROUTE, NOTE, SETTLE, BALANCE = 16, 17, 18, 19, 20
SKIP_LIGHT, SKIP_ALONE, RANK, RANGE, RANGE_SUM = 21, 22, 23, 24, 25
BARRIER, APPEND, BOX_SUM = 26, 27, 28

# The bounds of a partition into heavy and light values: a heavy value's degree is at least LOWER, a light one's less
# than UPPER; they are right while the number of tuples is at least SMALLEST and less than LIMIT.
BOUND_LOWER, BOUND_UPPER, BOUND_SMALLEST, BOUND_LIMIT = range(4)

# What APPEND notes of the rows that it has appended: how many runs there are, the step and the scanned rows of the
# last one, and where each of the first MOST_RUNS begins. The rows that one run of a path appends are distinct.
RUN_COUNT, RUN_STEP, RUN_SCANNED, RUN_STARTS = range(4)
MOST_RUNS = 64

# How LIFT reads a factor: limbs as they are, a key code (NULL is 0), 1 where a key code is not NULL.
FACTOR_LIMBS, FACTOR_CODE, FACTOR_PRESENCE = 0, 1, 2

# A list of words that grows: its address, its room and the words in use.
LIST_AT, LIST_ROOM, LIST_USED = range(3)
LIST_WORDS = 3

# Sums over boxes (boxes/box_sums.py): the order lists of the entries (0: no index), first by a group's key and by what
# is bounded first; the lock of who makes runs; the list of new entries, which has entries in use instead of words
# (UNMADE: there are neither entries nor runs yet); the bytes of runs, their number and their addresses.
BOX_FIRST, BOX_SECOND, BOX_LOCK, BOX_NEW, BOX_BYTES, BOX_RUNS, BOX_RUN = 0, 1, 2, 3, 6, 7, 8
MOST_RUNS_OF_BOX = 48
BOX_WORDS = BOX_RUN + MOST_RUNS_OF_BOX
UNMADE = -1
# A run (boxes/runs.py): its entries' number, the positions of its root, its bytes; then where its entries lie, their
# positions in the second order, the levels of blocks from the root's, and the smallest blocks.
RUN_SIZE, RUN_ROOT, RUN_BYTES, RUN_ENTRIES, RUN_SECOND, RUN_LEVELS, RUN_LEAVES, RUN_HEADER = range(8)

# The pairs of rows of two tables (programs/nearest_pairs.py). Of the left, of the pairs' own rows and of the right: the
# table, the group table of the ordered index and its number, then lists that begin with their length: the places of all
# key words, and of the group's key words.
(
    PAIRS_LEFT, PAIRS_LEFT_GROUP, PAIRS_LEFT_INDEX, PAIRS_LEFT_WORDS, PAIRS_LEFT_KEY,
    PAIRS_OWN, PAIRS_OWN_GROUP, PAIRS_OWN_INDEX, PAIRS_OWN_WORDS, PAIRS_OWN_KEY,
    PAIRS_RIGHT, PAIRS_RIGHT_GROUP, PAIRS_RIGHT_INDEX, PAIRS_RIGHT_WORDS, PAIRS_RIGHT_KEY,
) = range(15)  # fmt: skip
# Where the words of a changed row lie in encoded rows: the width of these, then a list of places.
PAIRS_LEFT_SOURCE, PAIRS_RIGHT_SOURCE = 15, 16
# Tests (0: none): of the right by a row of the left, a lower and an upper bound, and one of a second column; of the
# left, and of own rows, by a row of the right, and beside that those of the columns of extremes; of own rows with a
# better value than a row of the right.
PAIRS_LOWER, PAIRS_UPPER, PAIRS_SECOND = 17, 18, 19
PAIRS_REACHED, PAIRS_OWN_REACHED, PAIRS_BESIDE, PAIRS_OWN_BESIDE, PAIRS_BETTER = range(20, 25)
# How many copies are joined, 0: the extreme row; whether rows without a partner are kept; where own words come from:
# a list of (own place, left place), and one of (own place, right place, word of NULL); room for an own row. The places
# in an own row of the words of a row of the left.
PAIRS_MOST, PAIRS_OUTER, PAIRS_LAID, PAIRS_SHOWN, PAIRS_ROW, PAIRS_OWN_LEFT = range(25, 31)
# Lists: changed rows of the left and of the right, addresses of rows to look at again, made rows, slots to net these,
# subtrees that are still to be searched.
(
    PAIRS_MOVED, PAIRS_CAME, PAIRS_LEFTS, PAIRS_OWNS, PAIRS_MADE, PAIRS_SLOTS, PAIRS_STACK, PAIRS_SIZE
) = range(31, 31 + 8 * LIST_WORDS, LIST_WORDS)  # fmt: skip
