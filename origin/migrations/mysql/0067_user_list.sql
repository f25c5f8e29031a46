-- Users whom operators have blocked in every sale, or let buy whatever a risk check says.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE user_list (
    user_id  VARCHAR(128) NOT NULL PRIMARY KEY,
    standing VARCHAR(16) NOT NULL CHECK (standing IN ('blocked', 'allowed')),
    reason   VARCHAR(255) NOT NULL,
    -- Who says so, as they name themselves.
    operator VARCHAR(255) NOT NULL,
    at_ms    BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX user_list_by_standing ON user_list (standing, user_id);

-- Every change of it: only ever appended to.
CREATE TABLE user_list_log (
    id       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    user_id  VARCHAR(128) NOT NULL,
    -- 'none': the user was taken off it.
    standing VARCHAR(16) NOT NULL CHECK (standing IN ('blocked', 'allowed', 'none')),
    reason   VARCHAR(255) NOT NULL,
    operator VARCHAR(255) NOT NULL,
    at_ms    BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX user_list_log_by_user ON user_list_log (user_id, id);
