-- Whether records with qualifiers that would be dropped are refused, and how many records have such.
ALTER TABLE fitment_imports ADD COLUMN is_strict BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fitment_imports ADD COLUMN qualifiers_dropped BIGINT NOT NULL DEFAULT 0;
