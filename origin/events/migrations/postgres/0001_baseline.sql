-- Event types, events, consumer groups, retries, dead letters and pulls.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite and ../mysql have the same tables: change all.

-- The schema of each event type.
CREATE TABLE event_types (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- Starts at 1 and grows by 1 with each change.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- JSON in the format of the API.
    document      TEXT COLLATE "C" NOT NULL,
    changed_at_ms BIGINT NOT NULL
);

-- The first event of each ID.
CREATE TABLE events (
    -- `weir_event::row_key::of_id`.
    row_key       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    type          TEXT COLLATE "C" NOT NULL,
    -- The customer; NULL: unknown.
    customer      TEXT COLLATE "C",
    visitor       TEXT COLLATE "C",
    -- The times of the event and of its arrival.
    at_ms         BIGINT NOT NULL,
    received_ms   BIGINT NOT NULL,
    -- Its position in its log, which orders events of the same millisecond.
    position      BIGINT NOT NULL,
    -- Distinguishes it from another event with the same ID.
    fingerprint   TEXT COLLATE "C" NOT NULL,
    -- The whole event: `weir_event::envelope::Envelope`.
    envelope      BYTEA NOT NULL,
    expires_at_ms BIGINT NOT NULL
);

CREATE INDEX events_by_customer ON events (customer, at_ms, position);

CREATE INDEX events_by_visitor ON events (visitor, at_ms, position);

CREATE INDEX events_by_end ON events (expires_at_ms);

-- The state that an operator has set for a group. A group without a row runs.
CREATE TABLE event_groups (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    paused        BIGINT NOT NULL CHECK (paused IN (0, 1)),
    changed_at_ms BIGINT NOT NULL
);

-- The position of a group in a source. A source is the log of an origin or a partition of a topic.
CREATE TABLE event_positions (
    group_name    TEXT COLLATE "C" NOT NULL,
    source        TEXT COLLATE "C" NOT NULL,
    -- All records before it were handled, or are in the tables below.
    position      BIGINT NOT NULL CHECK (position >= 0),
    changed_at_ms BIGINT NOT NULL,
    PRIMARY KEY (group_name, source)
);

-- Events that a group could not handle yet, and later events of the same customer, which wait for them.
CREATE TABLE event_retries (
    group_name  TEXT COLLATE "C" NOT NULL,
    source      TEXT COLLATE "C" NOT NULL,
    position    BIGINT NOT NULL,
    -- The unit within which order counts: `Unit` of the origin.
    unit        TEXT COLLATE "C" NOT NULL,
    envelope    BYTEA NOT NULL,
    received_ms BIGINT NOT NULL,
    tries       BIGINT NOT NULL CHECK (tries >= 0),
    -- The time of the next attempt; NULL: after the earlier events of its unit.
    due_ms      BIGINT,
    error       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (group_name, source, position)
);

CREATE INDEX event_retries_by_due ON event_retries (group_name, source, due_ms);

CREATE INDEX event_retries_by_unit ON event_retries (group_name, source, unit, position);

-- Events that were refused on arrival or that a group could not handle.
CREATE TABLE event_dead_letters (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The group that gave up; '' if the event was refused on arrival.
    group_name   TEXT COLLATE "C" NOT NULL,
    reason       TEXT COLLATE "C" NOT NULL,
    message      TEXT COLLATE "C" NOT NULL,
    -- `DeadLetterContent`, as JSON.
    content      TEXT COLLATE "C" NOT NULL,
    dead_at_ms   BIGINT NOT NULL,
    -- The time of an operator's correction.
    edited_at_ms BIGINT
);

CREATE INDEX event_dead_letters_by_age ON event_dead_letters (dead_at_ms, id);

CREATE INDEX event_dead_letters_by_group ON event_dead_letters (group_name, dead_at_ms, id);

-- Units whose state in a group must be recomputed, because the group gave up one of their events.
CREATE TABLE event_compensations (
    group_name TEXT COLLATE "C" NOT NULL,
    unit       TEXT COLLATE "C" NOT NULL,
    tries      BIGINT NOT NULL CHECK (tries >= 0),
    -- NULL: too many attempts.
    due_ms     BIGINT,
    error      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (group_name, unit)
);

CREATE INDEX event_compensations_by_due ON event_compensations (group_name, due_ms);

-- The progress of collectors that fetch events from other systems.
CREATE TABLE event_pulls (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The last cursor from the source; '' at the start.
    next_from     TEXT COLLATE "C" NOT NULL,
    -- The number of consecutive failures, and the last reason.
    failures      BIGINT NOT NULL CHECK (failures >= 0),
    error         TEXT COLLATE "C" NOT NULL,
    -- The time of the last successful fetch, even without new events.
    fetched_at_ms BIGINT
);

-- Ranges of a log that were archived or are being archived, each as a whole. Ranges of one source never overlap.
CREATE TABLE event_archives (
    source         TEXT COLLATE "C" NOT NULL,
    first_position BIGINT NOT NULL,
    -- The position after its last record.
    next_position  BIGINT NOT NULL,
    noted_at_ms    BIGINT NOT NULL,
    PRIMARY KEY (source, first_position)
);

CREATE INDEX event_archives_by_age ON event_archives (noted_at_ms);
