-- probe: shards at a glance, for a gateway that looks for units.
--
-- KEYS, four a shard: stock, epoch, sums, transfers (see shard.lua and lend.lua). On Redis Cluster
-- all shards of one call must be of one slot.
-- ARGV: none
--
-- Returns one array a shard: {stock, epoch, open claims, open transfers}; {} for a cold shard.

local replies = {}
for k = 1, #KEYS, 4 do
  local shard = load(KEYS[k], KEYS[k + 1], KEYS[k + 2])
  replies[#replies + 1] = shard and {
    shard.stock, shard.epoch, shard.open, redis.call('HLEN', KEYS[k + 3]),
  } or {}
end
return replies
