-- Switches that operators set while origins run, in one row. NULL: the origin's flags apply.
CREATE TABLE history_switches (
    id             BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    cold_reads     BIGINT,
    count_cache    BIGINT,
    products_batch BIGINT
);
