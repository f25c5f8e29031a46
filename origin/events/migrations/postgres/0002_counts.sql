-- The number of stored events by hour and type, for trends. The group `store` adds to it in the transaction that stores
-- the events. ../sqlite and ../mysql have the same tables: change all.
CREATE TABLE event_counts (
    -- Start of the hour of the events' own times.
    hour_ms BIGINT NOT NULL,
    type    TEXT COLLATE "C" NOT NULL,
    -- Each source has its own rows, so that origins do not wait for each other.
    source  TEXT COLLATE "C" NOT NULL,
    events  BIGINT NOT NULL CHECK (events >= 0),
    PRIMARY KEY (hour_ms, type, source)
);
