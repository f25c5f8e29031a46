-- Steps of the archive of events.
-- The tables of migrations/mysql are the same: change both. There, cursors of collectors become longer, too: those of tables say
-- which rows were taken lately, and those of topics have a place for each partition.

-- A range of a log that was archived, or is being archived, as a whole. Ranges of one source never overlap.
CREATE TABLE event_archives (
    source         TEXT    NOT NULL,
    first_position INTEGER NOT NULL,
    -- Behind its last record.
    next_position  INTEGER NOT NULL,
    noted_at_ms    INTEGER NOT NULL,
    PRIMARY KEY (source, first_position)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_archives_by_age ON event_archives (noted_at_ms);
