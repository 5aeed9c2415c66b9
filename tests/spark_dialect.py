"""Generate docs/spark-dialect.md from the rules: what Spark's functions, casts and operators become, what is refused.

`python -m tests.spark_dialect` writes the page; a test asserts that it is up to date.
"""

from __future__ import annotations

from pathlib import Path

from sqlfront.sql.spark_meaning import SIGNS, rules

PAGE = Path(__file__).parent.parent / "docs" / "spark-dialect.md"
HEAD = """# Spark's functions, casts and operators

Generated from sqlfront/sql/spark_rules.txt by `python -m tests.spark_dialect`. tests/spark/test_spark_meaning.py
compares what is translated with Spark 4 over edge values. What is not listed is refused.

Equal means: wherever Spark answers (`spark.sql.ansi.enabled = true`, its default), the view has an equal value. These
differences remain:

- Where Spark fails by a division by zero, the view has NULL.
- `avg` and `/` of DECIMAL are DOUBLE. Spark's are DECIMAL, rounded to six digits or more.
- SUM of DECIMAL and products have DuckDB's precision, not Spark's.
- `upper` and `lower` follow DuckDB for letters that become several, but for ß.
- `collect_list` has an order that is completed by all columns; Spark's is not told.

A kind is int (every whole number), decimal, double (also FLOAT), string, date, timestamp, boolean, null, interval
(days, months, years) or time (other intervals). Two kinds with a slash are those of two values. `{0}` is the first
value.
"""


def page() -> str:
    """The page's text."""
    equal, written, refused = [], [], []
    for name, ways in sorted(rules().items(), key=lambda rule: rule[0].lower()):
        for kinds, how in ways:
            shown, of = _shown(name), "any" if "*" in kinds else ", ".join(sorted(kinds))
            if how == "=":
                equal.append(f"| {shown} | {of} |")
            elif how.startswith("!"):
                refused.append(f"| {shown} | {of} | {how[1:].strip()} |".replace(" | * +", " \\| * +"))
            else:
                written.append(f"| {shown} | {of} | `{how}` |")
    parts = [
        HEAD,
        "## The same in DuckDB, as sqlglot writes it\n\n| what | kinds |\n| --- | --- |\n" + "\n".join(equal) + "\n",
        "## Written otherwise\n\n| what | kinds | in DuckDB |\n| --- | --- | --- |\n" + "\n".join(written) + "\n",
        "## Refused\n\n| what | kinds | why |\n| --- | --- | --- |\n" + "\n".join(refused) + "\n",
    ]
    return "\n".join(parts)


def _shown(name: str) -> str:
    """A rule's name as users write it, with the number of its values or `pattern`."""
    word, _, values = name.partition("/")
    pattern = word.endswith(" \\")
    word = word.removesuffix(" \\")
    found = SIGNS.get(word, word).replace("|", "\\|")
    return f"`{found}`" + (f", {values} values" if values else "") + (", other patterns" if pattern else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
