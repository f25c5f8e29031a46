-- settle_transfer: removes an arrived transfer from its source shard.
--
-- KEYS: 1 transfers (see lend.lua)
-- ARGV: 1 target shard, 2 transfer ID
--
-- Returns 1 if the transfer was open, else 0.

local open = redis.call('HGET', KEYS[1], ARGV[1])
if not open or string.match(open, '^(%d+) ') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
