"""What rules about a record's key, headers and timestamp have in common.

They are judged where the ledger tells of them: older ones say nothing of what a record is beside its value.
"""

from holdfast.durability.rules.rule import Looks, Rule


def changed(name: str, meaning: str, false_alarm: str, differs: str, detail: str) -> Rule:
    """A rule of rows of `odd` in which SQL `differs` holds; `detail` is SQL for what to say of one."""
    return Rule(
        name=name,
        meaning=meaning,
        false_alarm=false_alarm,
        looks=Looks.FIELDS,
        needs=differs,
        sql=f"""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               {detail} AS detail
        FROM odd WHERE {differs}""",
    )


def of_checksums(column: str, none: str, gone: str, other: str) -> str:
    """`detail` of what is compared by its checksum: was sent with none, has none, or another."""
    return f"""CASE WHEN {column} IS NULL THEN 'was sent without {none}'
                    WHEN log_{column} IS NULL THEN '{gone}'
                    ELSE 'checksum of {other} is not the ledger''s' END"""
