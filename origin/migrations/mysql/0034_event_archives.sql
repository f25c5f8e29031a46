-- Steps of the archive of events.
-- The tables of migrations/sqlite are the same: change both.

-- A range of a log that was archived, or is being archived, as a whole. Ranges of one source never overlap.
CREATE TABLE event_archives (
    source         VARCHAR(192) NOT NULL,
    first_position BIGINT NOT NULL,
    -- Behind its last record.
    next_position  BIGINT NOT NULL,
    noted_at_ms    BIGINT NOT NULL,
    PRIMARY KEY (source, first_position)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX event_archives_by_age ON event_archives (noted_at_ms);

-- Cursors of tables say which rows were taken lately, and those of topics have a place for each partition.
ALTER TABLE event_pulls MODIFY next_from LONGTEXT NOT NULL;

-- A topic of Kafka may have 150 characters, and a source's name has its partition, too.
ALTER TABLE event_positions MODIFY source VARCHAR(192) NOT NULL;
ALTER TABLE event_retries MODIFY source VARCHAR(192) NOT NULL;
