-- Short links: the cold store, and who may hand out which numbers.
-- The tables of migrations/sqlite are the same: change both.

-- A link. Written behind Redis, from the origins' logs; edits are written here first.
CREATE TABLE links (
    domain        VARCHAR(16) NOT NULL,
    code          VARCHAR(32) NOT NULL,
    -- As in Redis: `weir_core::link::record`.
    record        MEDIUMTEXT NOT NULL,
    -- 1, and one more with every edit.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- A JSON list of texts.
    tags          TEXT NOT NULL,
    -- How long it lives after its last click; 0: for ever.
    life_ms       BIGINT NOT NULL CHECK (life_ms >= 0),
    -- When it ends whatever is clicked; NULL: never.
    ends_at_ms    BIGINT,
    created_at_ms BIGINT NOT NULL,
    changed_at_ms BIGINT NOT NULL,
    -- When it ends if nobody clicks, as far as it is known here: clicks are told later. NULL: never.
    expires_at_ms BIGINT,
    -- NULL: it is not deleted. A deleted link keeps its name for the quarantine.
    deleted_at_ms BIGINT,
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Clean-up goes through the ended ones by slices of time.
CREATE INDEX links_by_end ON links (expires_at_ms);

CREATE INDEX links_by_age ON links (created_at_ms, domain, code);

CREATE TABLE link_tags (
    tag           VARCHAR(64) NOT NULL,
    created_at_ms BIGINT NOT NULL,
    domain        VARCHAR(16) NOT NULL,
    code          VARCHAR(32) NOT NULL,
    PRIMARY KEY (tag, created_at_ms, domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_tags_by_link ON link_tags (domain, code);

-- What a link was before and after each edit; a link that was never edited has no rows.
CREATE TABLE link_history (
    domain  VARCHAR(16) NOT NULL,
    code    VARCHAR(32) NOT NULL,
    version BIGINT NOT NULL,
    action  VARCHAR(16) NOT NULL CHECK (action IN ('create', 'edit', 'disable', 'enable', 'delete')),
    record  MEDIUMTEXT NOT NULL,
    tags    TEXT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Changes that Redis may not have followed.
CREATE TABLE link_unpublished (
    domain  VARCHAR(16) NOT NULL,
    code    VARCHAR(32) NOT NULL,
    version BIGINT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How far each origin's log is in `links`, written in the transaction that writes the links.
CREATE TABLE link_logs (
    id      VARCHAR(64) NOT NULL PRIMARY KEY,
    file_no BIGINT NOT NULL,
    at_byte BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whoever inserts a segment may hand out its numbers: nobody gets one twice, whatever Redis says.
CREATE TABLE link_segments (
    digits         BIGINT NOT NULL,
    round_no       BIGINT NOT NULL,
    first_index    BIGINT NOT NULL,
    numbers        BIGINT NOT NULL CHECK (numbers >= 1),
    reserved_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no, first_index)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_segments_by_index ON link_segments (digits, first_index);

-- Rounds through the numbers of a length, the first (0) left out.
CREATE TABLE link_rounds (
    digits       BIGINT NOT NULL,
    round_no     BIGINT NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Numbers whose codes people have chosen: segments leave them out.
CREATE TABLE link_customs (
    digits       BIGINT NOT NULL,
    number_index BIGINT NOT NULL,
    domain       VARCHAR(16) NOT NULL,
    PRIMARY KEY (digits, number_index, domain)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every domain that ever was: it may have links.
CREATE TABLE link_domains (
    id VARCHAR(64) NOT NULL PRIMARY KEY
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
