-- How many numbers were reserved within the last days: `weir_origin_link_numbers_left`.
CREATE INDEX link_segments_by_time ON link_segments (digits, reserved_at_ms);
