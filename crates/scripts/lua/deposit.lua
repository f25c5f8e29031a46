-- deposit: units that have left another shard arrive on this one.
--
-- KEYS: 1 stock, 2 deposits (hash: lending shard -> id of its last transfer that came), 3 epoch
-- ARGV: 1 lending shard, 2 transfer id, 3 units
--
-- Returns 1: they have come; 2: they had come before, nothing changed; 3: cold shard, nothing changed.

if redis.call('EXISTS', KEYS[1]) == 0 then return 3 end
local last = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
if tonumber(ARGV[2]) <= last then return 2 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('INCRBY', KEYS[1], ARGV[3])
redis.call('INCR', KEYS[3])
return 1
