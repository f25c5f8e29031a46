-- Segments: customers by rules on their events. ../sqlite and ../mysql have the same tables: change all.

-- Events of a type in the order of customers, for segments and funnels.
CREATE INDEX events_by_type ON events (type, customer, at_ms);

-- Each segment, and the progress of its evaluation.
CREATE TABLE event_segments (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- Starts at 1 and grows by 1 with each change.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- JSON in the format of the API.
    document      TEXT COLLATE "C" NOT NULL,
    changed_at_ms BIGINT NOT NULL,
    -- 1: its members are being deleted, then this row.
    is_deleted    BIGINT NOT NULL CHECK (is_deleted IN (0, 1)),
    -- The time of the next evaluation.
    due_ms        BIGINT NOT NULL,
    -- One origin evaluates it until then.
    leased_until_ms BIGINT NOT NULL,
    -- The end of the windows of the evaluation that has begun; 0: none has.
    run_ms        BIGINT NOT NULL,
    -- Customers up to this one are evaluated.
    run_customer  TEXT COLLATE "C" NOT NULL,
    -- Members among them.
    run_members   BIGINT NOT NULL CHECK (run_members >= 0),
    -- The last complete evaluation; NULL: none.
    evaluated_ms  BIGINT,
    members       BIGINT NOT NULL CHECK (members >= 0),
    -- 0: it has more members than a segment may have.
    is_complete   BIGINT NOT NULL CHECK (is_complete IN (0, 1))
);

CREATE INDEX event_segments_by_due ON event_segments (due_ms);

-- The members of each segment.
CREATE TABLE event_segment_members (
    segment  TEXT COLLATE "C" NOT NULL,
    customer TEXT COLLATE "C" NOT NULL,
    since_ms BIGINT NOT NULL,
    -- Whether the log has the event that the customer entered.
    is_sent  BIGINT NOT NULL CHECK (is_sent IN (0, 1)),
    PRIMARY KEY (segment, customer)
);

CREATE INDEX event_segment_members_by_customer ON event_segment_members (customer, segment);
