-- How often each link was clicked, to list those that are clicked most.
-- The tables of migrations/sqlite are the same: change both.

-- Only links that were clicked have a row: a click may be counted before its link is in `links`.
CREATE TABLE link_totals (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    clicks BIGINT NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_totals_by_clicks ON link_totals (clicks, domain, code);

INSERT INTO link_totals (domain, code, clicks)
SELECT domain, code, SUM(clicks) FROM link_clicks WHERE span = 'day' AND clicks > 0 GROUP BY domain, code;
