-- probe: reads summaries of shards, for a gateway that looks for units.
--
-- KEYS: four for each shard: stock, epoch, sums, transfers (see shard.lua and lend.lua). On Redis Cluster, all shards of a
--       call must be in one slot.
-- ARGV: none
--
-- Returns one array for each shard: {stock, epoch, open claims, open transfers}; {} for a cold shard.

local replies = {}
for k = 1, #KEYS, 4 do
  local shard = load(KEYS[k], KEYS[k + 1], KEYS[k + 2])
  replies[#replies + 1] = shard and {
    shard.stock, shard.epoch, shard.open, redis.call('HLEN', KEYS[k + 3]),
  } or {}
end
return replies
