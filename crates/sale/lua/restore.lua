-- restore: writes users' orders from SQL to a cold shard.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 rebuild (see wipe.lua), 5 sequence, 6 bought (see record.lua)
-- ARGV: 1 token, then four for each user: user, bucket, generation of the last order, orders as in record.lua
--
-- Returns 1 if the orders were written. Returns 0 if the shard is not cold or another origin rebuilds it: nothing changed.
-- Extends the lease of the rebuild.

if load(KEYS[1], KEYS[2], KEYS[3]) then return 0 end
local token, _, lease_ms = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+) (%d+)$')
if token ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[4], token .. ' ' .. number(now_us() + lease_ms * 1000) .. ' ' .. lease_ms)

local shard = { version = 0, open = 0, held = 0, bought = 0, deferred = 0, checksum = 0 }
read_sums(shard, redis.call('GET', KEYS[3]))
local sequence = tonumber(redis.call('GET', KEYS[5]) or 0)
for i = 2, #ARGV, 4 do
  local key, user, orders = KEYS[6] .. ':' .. ARGV[i + 1], ARGV[i], ARGV[i + 3]
  local before = redis.call('HGET', key, user) or '-'
  count_orders(shard, before, -1)
  count_orders(shard, orders, 1)
  sequence = math.max(sequence, tonumber(ARGV[i + 2]))
  redis.call('HSET', key, user, orders)
end
redis.call('SET', KEYS[3], format_sums(shard))
redis.call('SET', KEYS[5], number(sequence))
return 1
