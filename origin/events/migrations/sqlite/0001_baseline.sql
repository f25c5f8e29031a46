-- Event types, events, consumer groups, retries, dead letters and pulls.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

-- What each type of events must look like.
CREATE TABLE event_types (
    name          TEXT    NOT NULL PRIMARY KEY,
    -- 1, and one more with every change.
    version       INTEGER NOT NULL CHECK (version >= 1),
    -- As the API takes it, as JSON.
    document      TEXT    NOT NULL,
    changed_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events, the first of each id.
CREATE TABLE events (
    -- `weir_event::row_key::of_id`.
    row_key       TEXT    NOT NULL PRIMARY KEY,
    type          TEXT    NOT NULL,
    -- Whose it is; NULL if nobody knows.
    customer      TEXT,
    visitor       TEXT,
    -- When it was, and when it was received.
    at_ms         INTEGER NOT NULL,
    received_ms   INTEGER NOT NULL,
    -- Its place in its log: tells the order of events of one millisecond.
    position      INTEGER NOT NULL,
    -- Tells it from another of the same id.
    fingerprint   TEXT    NOT NULL,
    -- All of it: `weir_event::envelope::Envelope`.
    envelope      BLOB NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX events_by_customer ON events (customer, at_ms, position);

CREATE INDEX events_by_visitor ON events (visitor, at_ms, position);

CREATE INDEX events_by_end ON events (expires_at_ms);

-- What an operator has said of a group. Without a row it runs.
CREATE TABLE event_groups (
    name          TEXT    NOT NULL PRIMARY KEY,
    paused        INTEGER NOT NULL CHECK (paused IN (0, 1)),
    changed_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far a group is in a source, which is the log of an origin or a partition of a topic.
CREATE TABLE event_positions (
    group_name    TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    -- What lies before was handled, or is in the tables below.
    position      INTEGER NOT NULL CHECK (position >= 0),
    changed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (group_name, source)
) STRICT, WITHOUT ROWID;

-- Events that a group could not handle yet, and those of the same customer that wait behind them.
CREATE TABLE event_retries (
    group_name  TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    -- Whose order counts: `Unit` of the origin.
    unit        TEXT    NOT NULL,
    envelope    BLOB NOT NULL,
    received_ms INTEGER NOT NULL,
    tries       INTEGER NOT NULL CHECK (tries >= 0),
    -- When it is tried next; NULL: when those before it of its unit are done.
    due_ms      INTEGER,
    error       TEXT    NOT NULL,
    PRIMARY KEY (group_name, source, position)
) STRICT;

CREATE INDEX event_retries_by_due ON event_retries (group_name, source, due_ms);

CREATE INDEX event_retries_by_unit ON event_retries (group_name, source, unit, position);

-- What was refused, and what a group has given up.
CREATE TABLE event_dead_letters (
    id           TEXT    NOT NULL PRIMARY KEY,
    -- Which group gave it up; '' if it was refused when it came.
    group_name   TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    message      TEXT    NOT NULL,
    -- `DeadLetterContent`, as JSON.
    content      TEXT    NOT NULL,
    dead_at_ms   INTEGER NOT NULL,
    -- When an operator corrected it.
    edited_at_ms INTEGER
) STRICT;

CREATE INDEX event_dead_letters_by_age ON event_dead_letters (dead_at_ms, id);

CREATE INDEX event_dead_letters_by_group ON event_dead_letters (group_name, dead_at_ms, id);

-- Whose state in a group is to be computed anew, since an event of theirs was given up.
CREATE TABLE event_compensations (
    group_name TEXT    NOT NULL,
    unit       TEXT    NOT NULL,
    tries      INTEGER NOT NULL CHECK (tries >= 0),
    -- NULL: it was tried too often.
    due_ms     INTEGER,
    error      TEXT    NOT NULL,
    PRIMARY KEY (group_name, unit)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_compensations_by_due ON event_compensations (group_name, due_ms);

-- How far a collector is that fetches events from elsewhere.
CREATE TABLE event_pulls (
    name          TEXT    NOT NULL PRIMARY KEY,
    -- What its source has told last; '' in the beginning.
    next_from     TEXT    NOT NULL,
    -- How often it failed in a row, and why.
    failures      INTEGER NOT NULL CHECK (failures >= 0),
    error         TEXT    NOT NULL,
    -- When something was fetched last, if only nothing new.
    fetched_at_ms INTEGER
) STRICT, WITHOUT ROWID;

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
