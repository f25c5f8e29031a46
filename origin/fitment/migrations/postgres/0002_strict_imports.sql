-- Whether the import refuses records with unsupported qualifiers, and the number of such records.
ALTER TABLE fitment_imports ADD COLUMN is_strict BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fitment_imports ADD COLUMN qualifiers_dropped BIGINT NOT NULL DEFAULT 0;
