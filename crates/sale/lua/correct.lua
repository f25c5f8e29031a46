-- correct: writes a user's orders from SQL to Redis, after Redis has lost data.
--
-- KEYS: 1 stock, 2 claims, 3 epoch, 4 sums, 5 bought (see shard.lua, record.lua)
-- ARGV: 1 user, 2 bucket, 3 orders that the caller has read from Redis, 4 orders in SQL; `-`: none
--
-- Returns 1 if the orders were written; 0 if the user has a claim or other orders than ARGV[3], or the shard is cold:
-- nothing changed. The stock does not change: the reconciler finds missing or surplus units in the total.

local shard = load(KEYS[1], KEYS[3], KEYS[4])
if not shard or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
local r = with_orders(redis.call('HGET', KEYS[5] .. ':' .. ARGV[2], ARGV[1]))
if r.orders ~= ARGV[3] then return 0 end
count_orders(shard, ARGV[3], -1)
count_orders(shard, ARGV[4], 1)
r.orders = ARGV[4]
shard.version = shard.version + 1
keep(KEYS[2], KEYS[5], ARGV[1], ARGV[2], r)
save(shard)
return 1
