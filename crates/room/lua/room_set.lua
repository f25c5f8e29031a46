-- room_set: the origin puts an operator's setting of a waiting room into Redis.
--
-- KEYS: setting (string: version mode per_minute active_max opens_at_ms)
-- ARGV: the same
--
-- A setting that is not newer than the one that is there changes nothing.
--
-- Returns 1 if it is newer, else 0.

local known = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^%d+'))
if known and known >= tonumber(string.match(ARGV[1], '^%d+')) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
