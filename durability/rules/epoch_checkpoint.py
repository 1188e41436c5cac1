"""Rule 18 for the checkpoint beside the log: it says another leader epoch than the batch in that place.

Followers truncate by what it says, and it is stored before the batches of an epoch are flushed. So it is
compared below what the broker had flushed; above that it may lag behind. One without any epoch is that of an
empty log, which begins at 0, or where the epoch below its beginning is said to end.
"""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

RULE = Rule(
    name="epoch_checkpoint",
    meaning="leader epoch checkpoint is not what batches say",
    false_alarm="files that were copied from a running broker while it truncated the log",
    looks=Looks.EPOCHS,
    sql=f"""
        SELECT topic, partition, base_offset AS offset, {NO_SEND},
               concat('replica ', broker, ', ', segment, ' at byte ', position, ': epoch ', leader_epoch,
                      ', the checkpoint says ',
                      CASE WHEN epoch IS NULL THEN 'none at all'
                           ELSE concat('epoch ', epoch, ' from offset ', start_offset) END,
                      CASE WHEN last_offset >= end_offset THEN concat(' to ', end_offset - 1) ELSE '' END)
                   AS detail, broker, segment, position
        FROM replica JOIN epochs USING (broker, topic, partition)
        WHERE problem IS NULL AND base_offset >= start_offset AND last_offset < flushed_offset
          AND (end_offset IS NULL OR base_offset < end_offset)
          AND (epoch IS NULL OR leader_epoch <> epoch OR last_offset >= end_offset)""",
)
