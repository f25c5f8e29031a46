-- The number of stored events by hour and type, for trends. The group `store` adds to it in the transaction that stores
-- the events. ../sqlite and ../postgres have the same tables: change all.
CREATE TABLE event_counts (
    -- Start of the hour of the events' own times.
    hour_ms BIGINT NOT NULL,
    type    VARCHAR(64) NOT NULL,
    -- Each source has its own rows, so that origins do not wait for each other.
    source  VARCHAR(192) NOT NULL,
    events  BIGINT NOT NULL CHECK (events >= 0),
    PRIMARY KEY (hour_ms, type, source)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
