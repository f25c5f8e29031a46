-- deposit: adds units that another shard has transferred to this one.
--
-- KEYS: 1 stock, 2 deposits (hash: source shard to the ID of its last received transfer), 3 epoch, 4 sums (see shard.lua)
-- ARGV: 1 source shard, 2 transfer ID, 3 units
--
-- Returns 1: the units are added; 2: they were added before, nothing changed; 3: cold shard, nothing changed.

local shard = load(KEYS[1], KEYS[3], KEYS[4])
if not shard then return 3 end
local last = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
if tonumber(ARGV[2]) <= last then return 2 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
change_stock(shard, tonumber(ARGV[3]))
shard.version = shard.version + 1
save(shard)
return 1
