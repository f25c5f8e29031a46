-- write_check: checks whether Redis accepts writes.
--
-- KEYS: 1 a key without other uses
-- ARGV: lifetime of the key in milliseconds
--
-- Returns 1.

redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1
